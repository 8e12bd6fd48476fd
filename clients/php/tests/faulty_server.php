<?php
/**
 * A server that has a fault: `php faulty_server.php FAULT`. It prints its address, and a line for each request.
 * It answers one connection at a time.
 */

declare( strict_types = 1 );

$fault = $argv[1];
$server = stream_socket_server( 'tcp://127.0.0.1:0' );
echo 'http://', stream_socket_get_name( $server, false ), "\n";

/** Reads the head of a request. Returns null at the end of the connection. */
function head( $client ): ?string {
    $head = '';
    while ( substr( $head, -4 ) !== "\r\n\r\n" ) {
        $byte = fread( $client, 1 );
        if ( $byte === '' || $byte === false ) {
            return null;
        }
        $head .= $byte;
    }
    echo "request\n";
    return $head;
}

function body( $client, string $head ): string {
    $body = '';
    $length = preg_match( '/^content-length: (\d+)/im', $head, $match ) ? (int)$match[1] : 0;
    while ( strlen( $body ) < $length && !feof( $client ) ) {
        $body .= fread( $client, $length - strlen( $body ) );
    }
    return $body;
}

while ( true ) {
    $client = @stream_socket_accept( $server, 3600 );
    if ( !$client ) {
        continue;
    }
    if ( $fault === 'counts connections' ) {
        // Connections that come within half a second are counted before any of them is answered.
        for ( $clients = [ $client ]; $next = @stream_socket_accept( $server, 0.5 ); $clients[] = $next ) {
        }
        foreach ( $clients as $client ) {
            head( $client );
            fwrite( $client, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" . count( $clients ) );
            fclose( $client );
        }
        continue;
    }
    if ( $fault === 'no read' ) {
        sleep( 3600 );
    }
    $head = (string)head( $client );
    if ( $fault === 'early answer' ) {
        fwrite( $client, "HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\nConnection: close\r\n\r\nbig" );
        usleep( 300000 );
        fclose( $client );
        continue;
    }
    $body = body( $client, $head );
    switch ( $fault ) {
        case 'close':
            break;
        case 'cut':
            fwrite( $client, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789" );
            break;
        case 'cut head':
            fwrite( $client, "HTTP/1.1 200 OK\r\nContent-Le" );
            break;
        case 'cut chunks':
            fwrite( $client, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n01234\r\n" );
            break;
        case 'slow':
            fwrite( $client, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n" );
            for ( $i = 0; $i < 100; $i++ ) {
                @fwrite( $client, 'x' );
                usleep( 100000 );
            }
            break;
        case 'endless body':
            @fwrite( $client, "HTTP/1.1 200 OK\r\n\r\n" );
            while ( @fwrite( $client, str_repeat( 'x', 10000 ) ) ) {
            }
            break;
        case 'endless head':
            @fwrite( $client, "HTTP/1.1 200 OK\r\n" );
            while ( @fwrite( $client, 'X-A: ' . str_repeat( 'x', 1000 ) . "\r\n" ) ) {
            }
            break;
        case 'no http':
            fwrite( $client, "SSH-2.0-OpenSSH_9.2\r\n\r\n" );
            break;
        case 'interim':
            fwrite( $client, "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" );
            fwrite( $client, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-A: 1\r\nX-a: 2\r\n\r\n" );
            fwrite( $client, "5;a=b\r\n01234\r\nA\r\n" );
            usleep( 20000 );
            fwrite( $client, "5678901234\r\n0\r\nX-Trailer: t\r\n\r\n" );
            break;
        case 'switch':
            fwrite( $client, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n" );
            sleep( 3600 );
            break;
        case 'no length':
            fwrite( $client, "HTTP/1.1 200 OK\r\n\r\nall of it" );
            break;
        case 'closes kept connections':
            fwrite( $client, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok" );
            $ready = [ $client, $server ];
            $none = null;
            stream_select( $ready, $none, $none, 3600 );
            if ( in_array( $client, $ready, true ) ) {
                head( $client );
            }
            break;
        case 'echo':
            $answer = json_encode( [ 'head' => $head, 'body' => base64_encode( $body ) ] );
            fwrite( $client, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: "
                . strlen( $answer ) . "\r\n\r\n$answer" );
            break;
    }
    fclose( $client );
}
