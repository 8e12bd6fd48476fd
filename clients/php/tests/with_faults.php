<?php
/** Tests with servers that have a fault, and with addresses at which nothing listens. */

declare( strict_types = 1 );

test( 'refused connection is a result, and does not fail the others', static function () {
    $good = Process::faulty( 'no length' );
    $store = new Rashomon\Store( [ '/' => [ 'servers' => [ $good->url ] ], '/bad' => [ 'servers' => [ refused_url() ] ] ],
        [ 'domain' => 'enwiki', 'transport' => TRANSPORT ] );
    $results = $store->run( [ [ 'GET', '/bad/1' ], [ 'GET', '/good' ], [ 'POST', '/bad/2', 'x' ] ] );
    same( [ 0, 200, 0 ], array_column( $results, 'status' ) );
    same( [ '', 'all of it', '' ], array_column( $results, 'body' ) );
    contains( '127.0.0.1', $results[0]->error );
    same( [ false, true, false ], array_map( static fn ( $result ) => $result->error === null, $results ) );
} );

test( 'every request goes to another server if the connection is refused', static function () {
    $good = Process::faulty( 'echo' );
    for ( $i = 0; $i < 4; $i++ ) {
        $store = store( [ refused_url(), $good->url ] );
        same( 200, $store->run( [ 'POST', '/clicks/Foo', [ 'increment' => 1 ] ] )[0]->status );
    }
    same( 4, $good->requests() );
} );

test( 'failed request leaves the error handler of the program in place', static function () {
    $warnings = [];
    $handler = static function ( int $_, string $message ) use ( &$warnings ): bool {
        $warnings[] = $message;
        return true;
    };
    set_error_handler( $handler );
    $result = store( [ refused_url() ] )->get( '/x' );
    $current = set_error_handler( null );
    restore_error_handler();
    restore_error_handler();
    same( [ 0, [] ], [ $result->status, $warnings ] );
    same( true, $current === $handler, 'the handler is the same:' );
} );

test( 'cut answers are errors without a part of the body', static function () {
    foreach ( [ 'close', 'cut', 'cut head', 'cut chunks', 'no http' ] as $fault ) {
        $server = Process::faulty( $fault );
        $result = store( [ $server->url ] )->get( '/page/A?rev/latest/html' );
        same( [ 0, '', [] ], [ $result->status, $result->body, $result->headers ], $fault );
        contains( $server->url, $result->error );
        same( 1, $server->requests() );
        $server->kill();
    }
} );

test( 'after a cut answer only harmless requests go to another server', static function () {
    [ $bad, $good ] = [ Process::faulty( 'cut' ), Process::faulty( 'echo' ) ];
    $statuses = [ 'GET' => [], 'POST' => [], 'POST ?rev/' => [] ];
    for ( $i = 0; $i < 2; $i++ ) {
        // One of the two orders begins with the bad server.
        foreach ( [ 'GET' => [ 'GET', '/x' ], 'POST' => [ 'POST', '/x', [ 'increment' => 1 ] ],
            'POST ?rev/' => [ 'POST', '/page/A?rev/', [ '_rev' => 1 ] ] ] as $name => $request ) {
            $store = store( [ $bad->url, $good->url ], [ 'probe_after' => 0.001 ] );
            for ( $j = 0; $j < 2; $j++ ) {
                $statuses[$name][] = $store->run( $request )[0]->status;
                usleep( 2000 );
            }
        }
    }
    same( [ 200, 200, 200, 200 ], $statuses['GET'] );
    same( [ 200, 200, 200, 200 ], $statuses['POST ?rev/'] );
    same( [ 0 => 2, 200 => 2 ], ( static function ( $counts ) {
        ksort( $counts );
        return $counts;
    } )( array_count_values( $statuses['POST'] ) ) );
} );

test( 'kept connection that the server closes does not repeat a POST', static function () {
    $server = Process::faulty( 'closes kept connections' );
    $store = store( [ $server->url ] );
    same( 'ok', $store->get( '/x' )->body );
    same( 'ok', $store->run( [ 'POST', '/clicks/Foo', 'x' ] )[0]->body );
    same( 2, $server->requests() );
} );

test( 'slow server ends the request at the time-out', static function () {
    foreach ( [ 'slow', 'no read' ] as $fault ) {
        $server = Process::faulty( $fault );
        $begin = microtime( true );
        $result = store( [ $server->url ], [ 'timeout' => 0.5 ] )->run( [ 'PUT', '/x', str_repeat( 'x', 20000000 ) ] )[0];
        $took = microtime( true ) - $begin;
        same( [ 0, '' ], [ $result->status, $result->body ], $fault );
        same( true, $took > 0.45 && $took < 5, "$fault took $took s" );
        $server->kill();
    }
} );

test( 'slow server does not delay requests to another server', static function () {
    if ( TRANSPORT !== 'curl' ) {
        return;
    }
    [ $slow, $good ] = [ Process::faulty( 'slow' ), Process::faulty( 'echo' ) ];
    $store = store( [ $slow->url, $good->url ], [ 'timeout' => 1 ] );
    same( [ 200, 200 ], array_column( $store->run( [ 'GET', '/a' ], [ 'GET', '/b' ] ), 'status' ) );
    same( 1, $slow->requests() );
    $begin = microtime( true );
    same( [ 200, 200 ], array_column( $store->run( [ 'GET', '/a' ], [ 'GET', '/b' ] ), 'status' ) );
    same( true, microtime( true ) - $begin < 0.9, 'the slow server is left out:' );
} );

test( 'connection that is not accepted ends the try at connect_timeout', static function () {
    // The queue of new connections is full, so the system does not answer further ones.
    $queue = stream_context_create( [ 'socket' => [ 'backlog' => 1 ] ] );
    $full = stream_socket_server( 'tcp://127.0.0.1:0', $code, $message, STREAM_SERVER_BIND | STREAM_SERVER_LISTEN, $queue );
    $address = stream_socket_get_name( $full, false );
    $waiting = [];
    for ( $i = 0; $i < 8; $i++ ) {
        $waiting[] = stream_socket_client( "tcp://$address", $code, $message, 5,
            STREAM_CLIENT_CONNECT | STREAM_CLIENT_ASYNC_CONNECT );
    }
    $good = Process::faulty( 'echo' );
    for ( $i = 0; $i < 4; $i++ ) {
        $begin = microtime( true );
        $result = store( [ "http://$address" ], [ 'connect_timeout' => 0.3, 'timeout' => 20 ] )->get( '/x' );
        $took = microtime( true ) - $begin;
        same( 0, $result->status );
        same( true, $took > 0.25 && $took < 5, "it took $took s" );
        // Chance decides which server is the first, so there are four rounds.
        $store = store( [ "http://$address", $good->url ], [ 'connect_timeout' => 0.3 ] );
        same( 200, $store->run( [ 'POST', '/clicks/Foo', 'x' ] )[0]->status, 'no byte was sent:' );
    }
} );

test( 'answer above the maximum is an error, and is not read to its end', static function () {
    foreach ( [ 'endless body' => 'max_answer', 'endless head' => '64 KiB' ] as $fault => $part ) {
        [ $server, $other ] = [ Process::faulty( $fault ), Process::faulty( $fault ) ];
        $result = store( [ $server->url, $other->url ], [ 'max_answer' => 100000 ] )->get( '/x' );
        same( [ 0, '' ], [ $result->status, $result->body ] );
        contains( $part, $result->error );
        same( 1, $server->requests() + $other->requests(), 'not repeated:' );
    }
    $server = Process::faulty( 'no length' );
    same( 200, store( [ $server->url ], [ 'max_answer' => 9 ] )->get( '/x' )->status );
    same( 0, store( [ $server->url ], [ 'max_answer' => 8 ] )->get( '/x' )->status );
} );

test( 'early answer to a large body is read', static function () {
    $server = Process::faulty( 'early answer' );
    $result = store( [ $server->url ], [ 'timeout' => 10 ] )->run( [ 'POST', '/x', str_repeat( 'x', 20000000 ) ] )[0];
    same( [ 413, 'big' ], [ $result->status, $result->body ], (string)$result->error );
} );

test( 'switch to another protocol is an error at once', static function () {
    $server = Process::faulty( 'switch' );
    $begin = microtime( true );
    $result = store( [ $server->url ], [ 'timeout' => 20 ] )->get( '/x' );
    same( [ 0, '' ], [ $result->status, $result->body ] );
    contains( '101', $result->error );
    same( true, microtime( true ) - $begin < 10, 'without waiting:' );
    $server->kill();
} );

test( 'interim answers, chunks and repeated headers are read', static function () {
    $result = store( [ Process::faulty( 'interim' )->url ] )->get( '/x' );
    same( [ 200, '012345678901234', '1, 2' ], [ $result->status, $result->body, $result->headers['x-a'] ?? $result->error ] );
    same( false, isset( $result->headers['link'] ) );
} );

test( 'requests are sent as they are', static function () {
    $server = Process::faulty( 'echo' );
    $store = store( [ $server->url ], [ 'token' => 'secret' ] );
    $sent = $store->run( [ 'PUT', '/a/../b%2f//c?rev/x', "\0\xff", 'headers' => [ 'X-Empty' => '', 'X-A' => 'b' ] ] )[0]->json();
    contains( "PUT /v1/enwiki/a/../b%2f//c?rev/x HTTP/1.1\r\n", $sent['head'] );
    foreach ( [ 'host: ' . $server->address(), 'authorization: bearer secret', 'x-empty:', 'x-a: b', 'content-length: 2' ] as $line ) {
        same( 1, preg_match( '/^' . preg_quote( $line, '/' ) . '\s*\r$/mi', $sent['head'] ), $line );
    }
    foreach ( [ 'content-type', 'expect' ] as $name ) {
        same( 0, preg_match( "/^$name:/mi", $sent['head'] ), $name );
    }
    foreach ( [ 'PUT' => 1, 'POST' => 1, 'GET' => 0, 'DELETE' => 0 ] as $method => $lengths ) {
        $head = $store->run( [ $method, '/a' ] )[0]->json()['head'];
        same( $lengths, preg_match_all( '/^content-length: 0\r$/mi', $head ), $method );
        same( 0, preg_match( '/^content-type:/mi', $head ), $method );
    }
    same( base64_encode( "\0\xff" ), $sent['body'] );
    $sent = $store->run( [ 'PUT', '/a', str_repeat( 'x', 2000000 ) ] )[0]->json();
    same( 0, preg_match( '/^expect:/mi', $sent['head'] ), 'a large body is sent at once:' );
    same( base64_encode( 'a=1' ), $store->run( [ 'POST', '/a', [ 'a' => 1 ] ] )[0]->json()['body'] );
} );

test( 'number of requests that run at once is bounded', static function () {
    $store = store( [ Process::faulty( 'counts connections' )->url ], [ 'concurrency' => 3 ] );
    $results = $store->run( array_fill( 0, 4, [ 'GET', '/x' ] ) );
    same( TRANSPORT === 'curl' ? [ '3', '3', '3', '1' ] : [ '1', '1', '1', '1' ], array_column( $results, 'body' ) );
} );

test( 'proxies in environment variables are not used', static function () {
    $server = Process::faulty( 'echo' );
    putenv( 'http_proxy=' . refused_url() );
    $result = store( [ $server->url ] )->get( '/x' );
    putenv( 'http_proxy' );
    same( 200, $result->status );
} );
