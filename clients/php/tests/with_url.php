<?php
/** Tests with a server that runs already. They show that both transports work on a version of PHP. */

declare( strict_types = 1 );

foreach ( [ 'curl', 'streams' ] as $transport ) {
    test( "requests are answered over $transport", static function () use ( $transport ) {
        $store = new Rashomon\Store( [ '/' => [ 'servers' => [ URL ] ] ],
            [ 'domain' => 'enwiki', 'transport' => $transport ] );
        $html = str_repeat( "<p>0123456789 \u{e4}</p>\n", 20000 );
        $writes = $reads = [];
        for ( $i = 0; $i < 10; $i++ ) {
            $writes[] = [ 'POST', "/page/$transport/$i?rev/", [ '_rev' => 1, 'html' => "$i $html" ] ];
            $reads[] = [ 'GET', "/page/$transport/$i?rev/latest/html" ];
        }
        $results = $store->run( $writes );
        same( array_fill( 0, 10, 201 ), array_column( $results, 'status' ), (string)$results[0]->error );
        foreach ( $store->run( $reads ) as $i => $result ) {
            same( md5( "$i $html" ), md5( $result->body ), (string)$result->error );
        }
        same( md5( "0 $html" ), md5( $store->get( "/page/$transport/0?rev/1/html" )->body ) );
        same( 'Not found', $store->get( '/page/None?rev/latest/html' )->problem()['title'] );
        $short = new Rashomon\Store( [ '/' => [ 'servers' => [ URL ] ] ],
            [ 'domain' => 'enwiki', 'transport' => $transport, 'max_answer' => 1000 ] );
        contains( 'max_answer', $short->get( "/page/$transport/0?rev/latest/html" )->error );
    } );
}
