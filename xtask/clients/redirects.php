<?php
/** Follows redirects with the streams of PHP: php redirects.php BODY URL... */

declare( strict_types = 1 );

[ , $expected ] = $argv;
foreach ( array_slice( $argv, 2 ) as $url ) {
    $body = file_get_contents( $url, false, stream_context_create( [ 'http' => [ 'ignore_errors' => true ] ] ) );
    if ( $body !== $expected ) {
        fwrite( STDERR, "$url leads to: $body\n" );
        exit( 1 );
    }
}
