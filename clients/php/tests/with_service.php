<?php
/** Tests with the real service. */

declare( strict_types = 1 );

use Rashomon\Store;
use function Rashomon\path;

/** Writes a revision, and returns the result. */
function write( Store $store, string $title, int $revision, array $fields ): Rashomon\Result {
    return $store->run( [ 'POST', path( 'page', $title ) . '?rev/', $fields + [ '_rev' => $revision ] ] )[0];
}

/** Makes a certificate for 127.0.0.1. Returns the files of the certificate and of the key. */
function certificate(): array {
    $folder = folder();
    file_put_contents( "$folder/openssl.cnf",
        "[req]\ndistinguished_name = name\n[name]\n[server]\nsubjectAltName = IP:127.0.0.1\nbasicConstraints = CA:FALSE\n" );
    $settings = [ 'config' => "$folder/openssl.cnf", 'x509_extensions' => 'server', 'digest_alg' => 'sha256',
        'private_key_bits' => 2048 ];
    $key = openssl_pkey_new( $settings );
    $request = openssl_csr_new( [ 'commonName' => 'rashomon' ], $key, $settings );
    openssl_x509_export_to_file( openssl_csr_sign( $request, null, $key, 30, $settings ), "$folder/certificate.pem" );
    openssl_pkey_export_to_file( $key, "$folder/key.pem", null, $settings );
    return [ "$folder/certificate.pem", "$folder/key.pem" ];
}

$service = Process::service();

test( 'revision is written and read', static function () use ( $service ) {
    $store = store( [ $service->url ] );
    $html = "<p>Grüße & \"Zeichen\" + 100%</p>\n";
    $title = 'Kitchen/Île aux Phoques? 100% & more';
    $written = write( $store, $title, 7, [ 'html' => $html, 'wikitext' => 'x', '_user' => 'Ann', '_minor' => true,
        '_comment' => 'a = b' ] );
    same( [ 201, null ], [ $written->status, $written->error ] );
    same( [ strtr( $title, ' ', '_' ), 7 ], [ $written->json()['title'], $written->json()['rev'] ] );
    $page = path( 'page', $title );
    $latest = $store->get( "$page?rev/latest/html" );
    same( [ 200, $html, 'text/html; charset=utf-8' ], [ $latest->status, $latest->body, $latest->headers['content-type'] ] );
    $record = $store->get( "$page?rev/latest/" )->json();
    same( [ 'Ann', 'a = b', true ], [ $record['user'], $record['comment'], $record['minor'] ] );
    $byTid = $store->get( "$page?rev/{$record['tid']}/html" );
    same( [ $html, '"7/' . $record['tid'] . '"' ], [ $byTid->body, $byTid->headers['etag'] ] );
    same( $html, $store->get( "$page?rev/7/html" )->body, 'the redirect is followed:' );
    same( 302, $store->run( [ 'GET', "$page?rev/7/html" ] )[0]->status );
    same( $html, $store->get( strtr( $page, [ '_' => '%20' ] ) . '?rev/latest/html' )->body, 'other spelling:' );
    same( 200, write( $store, $title, 7, [ 'html' => $html, 'wikitext' => 'x', '_user' => 'Ann', '_minor' => true,
        '_comment' => 'a = b' ] )->status, 'repeated:' );
    $head = $store->run( [ 'HEAD', "$page?rev/latest/html" ] )[0];
    same( [ 200, '', (string)strlen( $html ) ], [ $head->status, $head->body, $head->headers['content-length'] ] );
    same( 404, $store->get( '//dewiki' . "$page?rev/latest/html" )->status );
    same( 201, $store->run( [ 'POST', "//dewiki$page?rev/", [ '_rev' => 1, 'html' => 'de' ] ] )[0]->status );
    same( 'de', $store->get( "//dewiki$page?rev/latest/html" )->body );
} );

test( 'bytes of every value are stored as they are', static function () use ( $service ) {
    $store = store( [ $service->url ] );
    $bytes = implode( '', array_map( 'chr', range( 0, 255 ) ) );
    same( 201, write( $store, 'Bytes', 1, [ 'html' => 'x', 'data' => 'x' ] )->status );
    $tid = $store->get( '/page/Bytes?rev/latest/' )->json()['tid'];
    $put = $store->run( [ 'PUT', "/page/Bytes?rev/$tid/data", $bytes, 'headers' => [ 'Content-Type' => 'image/x-test' ] ] )[0];
    same( 200, $put->status, $put->body );
    $read = $store->get( "/page/Bytes?rev/$tid/data" );
    same( [ $bytes, 'image/x-test' ], [ $read->body, $read->headers['content-type'] ] );
} );

test( 'large bodies are written and read', static function () use ( $service ) {
    $store = store( [ $service->url ] );
    $html = str_repeat( "<p>0123456789 äöü</p>\n", 150000 );
    same( 201, write( $store, 'Large', 1, [ 'html' => $html ] )->status );
    same( md5( $html ), md5( $store->get( '/page/Large?rev/latest/html' )->body ) );
    $short = store( [ $service->url ], [ 'max_answer' => 1000000 ] )->get( '/page/Large?rev/latest/html' );
    same( 0, $short->status );
    contains( 'max_answer', $short->error );
} );

test( 'problems are exposed', static function () use ( $service ) {
    $store = store( [ $service->url ] );
    $missing = $store->get( path( 'page', 'No such page' ) . '?rev/latest/html' );
    same( [ 404, false, 'urn:rashomon:problem:not-found', 'Not found' ],
        [ $missing->status, $missing->ok(), $missing->problem()['type'], $missing->problem()['title'] ] );
    contains( 'no page', $missing->problem()['detail'] );
    same( 400, write( $store, 'Wrong', 1, [ '_unknown' => 1, 'html' => 'x' ] )->status );
    same( 404, $store->get( '/math-png/a.png' )->status );
} );

test( 'conditions hold', static function () use ( $service ) {
    $store = store( [ $service->url ] );
    same( 201, write( $store, 'Condition', 1, [ 'html' => 'a', '_if_latest' => 0 ] )->status );
    $conflict = write( $store, 'Condition', 2, [ 'html' => 'b', '_if_latest' => 0 ] );
    same( [ 409, 'urn:rashomon:problem:not-latest', 1 ],
        [ $conflict->status, $conflict->problem()['type'], $conflict->problem()['latest']['rev'] ] );
    same( 'urn:rashomon:problem:conflict', write( $store, 'Condition', 1, [ 'html' => 'other' ] )->problem()['type'] );
    $read = $store->get( '/page/Condition?rev/latest/html' );
    $tag = $read->headers['etag'];
    same( 304, $store->get( '/page/Condition?rev/latest/html', [ 'If-None-Match' => $tag ] )->status );
    same( 412, $store->get( '/page/Condition?rev/latest/html', [ 'If-Match' => '"other"' ] )->status );
    $path = '/page/Condition' . $read->headers['content-location'];
    same( 412, $store->run( [ 'PUT', $path, 'b', 'headers' => [ 'If-Match' => '"other"' ] ] )[0]->status );
    same( 200, $store->run( [ 'PUT', $path, 'b', 'headers' => [ 'If-Match' => $tag ] ] )[0]->status );
    same( 'b', $store->get( '/page/Condition?rev/latest/html' )->body );
} );

test( 'examples of note 002 run', static function () use ( $service ) {
    $store = store( [ $service->url ] );
    $json = [ 'headers' => [ 'Content-type' => 'application/json' ] ];
    $key = '/math-png/96d719730559f4399cf1ddc2ba973bbd.png';
    // Create a simple blob bucket, and get its properties.
    same( 201, $store->run( 'PUT', '/math-png', '{"type": "blob"}', $json )->status );
    same( 'blob', $store->get( '/math-png' )->json()['type'] );
    // Add a new entry, and read one entry back.
    same( 201, $store->run( 'PUT', $key, "\x89PNG\r\n\x1a\n" )->status );
    same( [ "\x89PNG\r\n\x1a\n", 'application/octet-stream' ],
        [ $store->GET( $key )->body, $store->GET( $key )->headers['content-type'] ] );
    // Also set some headers explicitly. These are stored along with the value.
    $headers = [ 'Content-type' => 'image/png', 'X-Source' => 'math' ];
    same( 200, $store->run( 'PUT', $key, 'value', [ 'headers' => $headers ] )->status );
    $read = $store->GET( $key );
    same( [ 'value', 'image/png', 'math' ], [ $read->body, $read->headers['content-type'], $read->headers['x-source'] ] );
    // Add several entries in a batch, and read a batch.
    $added = $store->run(
        array( 'PUT', '/math-png/1.png', 'value1' ),
        array( 'PUT', '/math-png/2.png', 'value2', 'headers' => $headers )
    );
    same( [ 201, 201 ], array_column( $added, 'status' ) );
    $read = $store->run(
        array( 'GET', '/math-png/1.png' ),
        array( 'GET', '/math-png/2.png' )
    );
    same( [ 'value1', 'value2' ], array_column( $read, 'body' ) );
    same( 'image/png', $read[1]->headers['content-type'] );
    // List bucket contents.
    $listed = array_column( $store->get( '/math-png/' )->json()['entries'], 'key' );
    sort( $listed );
    same( [ '1.png', '2.png', substr( $key, strlen( '/math-png/' ) ) ], $listed );
    // Create an ordered blob bucket, add entries, and list those that match an inequality or a range.
    same( 201, $store->run( 'PUT', '/timeseries', '{ "type": "ordered-blob" }', $json )->status );
    $times = [ '2012-01-30T00:00:00Z', '2012-02-12T22:30:23.56Z-something', '2012-03-12T22:30:23.56Z-something', '2012-04-01' ];
    foreach ( $times as $time ) {
        same( 201, $store->run( 'PUT', "/timeseries/$time", 'x' )->status );
    }
    $keys = static fn ( $result ) => array_column( $result->json()['entries'], 'key' );
    same( [ $times[0] ], $keys( $store->get( '/timeseries/?lt=2012-04&limit=1' ) ) );
    same( [ $times[1], $times[2] ], $keys( $store->get( '/timeseries/?gt=2012-02&lt=2012-04&limit=50' ) ) );
} );

test( 'counters of note 002 are read and incremented in one go', static function () use ( $service ) {
    $store = store( [ $service->url ] );
    $json = [ 'headers' => [ 'Content-Type' => 'application/json' ] ];
    foreach ( [ '/pageviews', '/clicks' ] as $bucket ) {
        same( 201, $store->run( 'PUT', $bucket, '{"type": "counter"}', $json )->status );
    }
    $results = $store->run(
        array( 'GET', '/pageviews/Foo' ),
        array( 'POST', '/clicks/Foo/button1', array( 'increment' => 1 ) )
    );
    same( [ [ 'value' => 0 ], [ 'value' => 1 ] ], [ $results[0]->json(), $results[1]->json() ] );
    same( 2, $store->run( 'POST', '/clicks/Foo/button1' )->json()['value'] );
} );

test( 'conditions of entries hold', static function () use ( $service ) {
    $store = store( [ $service->url ] );
    $json = [ 'headers' => [ 'Content-Type' => 'application/json' ] ];
    same( 201, $store->run( 'PUT', '/conditions', '{"type": "blob", "content_type": "text/plain"}', $json )->status );
    $path = path( 'conditions', 'a b/Île?' );
    $create = [ 'headers' => [ 'If-None-Match' => '*' ] ];
    $created = $store->run( 'PUT', $path, '1', $create );
    same( [ 201, 412 ], [ $created->status, $store->run( 'PUT', $path, 'x', $create )->status ] );
    $replaced = $store->run( 'PUT', $path, '2', [ 'headers' => [ 'If-Match' => $created->headers['etag'] ] ] );
    $old = [ 'headers' => [ 'If-Match' => $created->headers['etag'] ] ];
    same( [ 200, 412, 412 ], [ $replaced->status, $store->run( 'PUT', $path, 'x', $old )->status,
        $store->run( 'DELETE', $path, null, $old )->status ] );
    $read = $store->get( $path );
    same( [ '2', 'text/plain', $replaced->headers['etag'] ],
        [ $read->body, $read->headers['content-type'], $read->headers['etag'] ] );
    same( 304, $store->get( $path, [ 'If-None-Match' => $read->headers['etag'] ] )->status );
    same( [ 206, '2' ], [ $store->get( $path, [ 'Range' => 'bytes=0-0' ] )->status, $store->get( $path )->body ] );
    same( [ 204, 404 ], [ $store->run( 'DELETE', $path )->status, $store->get( $path )->status ] );
    same( 201, $store->run( 'PUT', $path, '' )->status );
    same( [ 200, '' ], [ $store->get( $path )->status, $store->get( $path )->body ] );
    same( [ 204, 404 ], [ $store->run( 'DELETE', '/conditions' )->status, $store->get( '/conditions' )->status ] );
} );

test( 'entries of a bucket are listed', static function () use ( $service ) {
    $store = store( [ $service->url ] );
    $json = [ 'headers' => [ 'Content-Type' => 'application/json' ] ];
    same( 201, $store->run( 'PUT', '/listed', '{"type": "ordered-blob"}', $json )->status );
    $names = [ 'a', 'a b', 'a&b', 'a+b', 'a/b', 'b', 'ü' ];
    $store->run( array_map( static fn ( $name ) => [ 'PUT', path( 'listed', $name ), 'x' ], $names ) );
    $keys = static fn ( array $parameters ) =>
        array_column( iterator_to_array( $store->entries( '/listed/', $parameters ) ), 'key' );
    same( $names, $keys( [] ) );
    same( $names, $keys( [ 'limit' => 2 ] ) );
    same( array_reverse( $names ), $keys( [ 'order' => 'desc', 'limit' => 3 ] ) );
    same( [ 'a&b', 'a+b', 'a/b' ], $keys( [ 'gt' => 'a b', 'lt' => 'b', 'limit' => 1 ] ) );
    same( [ 'a+b' ], $keys( [ 'prefix' => 'a+' ] ) );
    broken( 'prefix', static fn () => iterator_to_array( $store->entries( '/listed/', [ 'prefix' => str_repeat( 'a', 1025 ) ] ) ) );
    broken( 'status 404', static fn () => $store->entries( '/absent/' )->current() );
    same( true, in_array( 'listed', array_column( iterator_to_array( $store->entries( '/' ) ), 'name' ), true ) );
} );

test( 'fifty requests run at once', static function () use ( $service ) {
    $store = store( [ $service->url ] );
    $writes = $reads = $expected = [];
    for ( $i = 0; $i < 50; $i++ ) {
        $writes[] = [ 'POST', "/page/Many/$i?rev/", [ '_rev' => 1, 'html' => "page $i" ] ];
        $reads[] = [ 'GET', $i === 25 ? '/page/None?rev/latest/html' : "/page/Many/$i?rev/latest/html" ];
        $expected[] = $i === 25 ? 404 : "page $i";
    }
    same( array_fill( 0, 50, 201 ), array_column( $store->run( $writes ), 'status' ) );
    same( $expected, array_map( static fn ( $result ) => $result->ok() ? $result->body : $result->status, $store->run( $reads ) ) );
} );

test( 'token is needed, and is sent', static function () {
    $data = folder() . '/data';
    exec( escapeshellarg( PROGRAM ) . ' token new --rights read,write --domain enwiki --data ' . escapeshellarg( $data )
        . ' 2>/dev/null', $lines );
    $secured = Process::service( "[access]\nanonymous = []\n", $data );
    $file = folder() . '/writer.token';
    file_put_contents( $file, "$lines[0]\n" );
    $without = write( store( [ $secured->url ] ), 'A', 1, [ 'html' => 'x' ] );
    same( [ 401, 'Bearer', 'urn:rashomon:problem:unauthorized' ],
        [ $without->status, $without->headers['www-authenticate'], $without->problem()['type'] ] );
    same( 201, write( store( [ $secured->url ], [ 'token_file' => $file ] ), 'A', 1, [ 'html' => 'x' ] )->status );
    $store = store( [ $secured->url ], [ 'token' => $lines[0] ] );
    same( 'x', $store->get( '/page/A?rev/latest/html' )->body );
    same( 403, $store->get( '//dewiki/page/A?rev/latest/html' )->status );
    same( 401, store( [ $secured->url ], [ 'token' => 'wrong' ] )->get( '/page/A?rev/latest/html' )->status );
} );

test( 'server that is killed is left out, and is used again after its restart', static function () {
    [ $dataA, $dataB ] = [ folder() . '/data', folder() . '/data' ];
    [ $a, $b ] = [ Process::service( '', $dataA ), Process::service( '', $dataB ) ];
    // The two servers have stores of their own, so that a read shows which one has answered.
    write( store( [ $a->url ] ), 'Who', 1, [ 'html' => 'a' ] );
    write( store( [ $b->url ] ), 'Who', 1, [ 'html' => 'b' ] );
    $store = store( [ $a->url, $b->url ], [ 'probe_after' => 1 ] );
    $read = static function ( int $times ) use ( $store ): string {
        $results = $store->run( array_fill( 0, $times, [ 'GET', '/page/Who?rev/latest/html' ] ) );
        return count_chars( implode( '', array_map( static fn ( $result ) => $result->error ?? $result->body, $results ) ), 3 );
    };
    same( 'ab', $read( 10 ) );
    $address = $a->address();
    $a->kill();
    same( 'b', $read( 50 ) );
    $writes = array_map( static fn ( $i ) => [ 'POST', "/page/New/$i?rev/", [ '_rev' => 1, 'html' => 'x' ] ], range( 1, 10 ) );
    same( array_fill( 0, 10, 201 ), array_column( $store->run( $writes ), 'status' ) );
    $a = Process::service( '', $dataA, $address );
    usleep( 1100000 );
    $read( 2 );
    same( 'ab', $read( 10 ) );
    $a->kill();
    $b->kill();
    same( 0, $store->get( '/page/Who?rev/latest/html' )->status );
    $b = Process::service( '', $dataB, $b->address() );
    same( 'b', $store->get( '/page/Who?rev/latest/html' )->body, 'no wait if all servers are left out:' );
} );

test( 'certificate is verified', static function () {
    [ [ $certificate, $key ], [ $other ] ] = [ certificate(), certificate() ];
    $secured = Process::service( "tls_certificate = \"$certificate\"\ntls_key = \"$key\"\n" );
    same( 'https://', substr( $secured->url, 0, 8 ) );
    $store = store( [ $secured->url ], [ 'ca_file' => $certificate ] );
    $html = str_repeat( "0123456789\n", 300000 );
    $written = write( $store, 'A', 1, [ 'html' => $html ] );
    same( 201, $written->status, (string)$written->error );
    same( md5( $html ), md5( $store->get( '/page/A?rev/latest/html' )->body ) );
    $results = $store->run( array_fill( 0, 10, [ 'GET', '/page/A?rev/latest/' ] ) );
    same( array_fill( 0, 10, 200 ), array_column( $results, 'status' ) );
    $url = strtr( $secured->url, [ '127.0.0.1' => 'localhost' ] );
    foreach ( [
        [ $secured->url, [] ],
        [ $secured->url, [ 'ca_file' => $other ] ],
        [ $url, [ 'ca_file' => $certificate ] ],
    ] as [ $server, $options ] ) {
        $refused = store( [ $server ], $options )->get( '/page/A?rev/latest/html' );
        same( 0, $refused->status, $server );
        same( 1, preg_match( '/certificate|(peer|subject) name/i', $refused->error ), $refused->error );
    }
    $plain = store( [ strtr( $secured->url, [ 'https' => 'http' ] ) ] )->get( '/page/A?rev/latest/html' );
    same( 400, $plain->status );
} );

$service->kill();
