<?php
/**
 * Runs the tests: `php run.php [--server PROGRAM] [--transport curl|streams] [--url URL]`.
 *
 * `--server` adds tests that start servers, which use the transport of `--transport`. `--url` adds a few tests with a
 * server that runs already and has no page, for a PHP that cannot start programs.
 */

declare( strict_types = 1 );

require __DIR__ . '/runner.php';
require __DIR__ . '/../Rashomon.php';

$options = getopt( '', [ 'server:', 'transport:', 'url:' ] );
if ( isset( $options['server'] ) && !is_executable( $options['server'] ) ) {
    fwrite( STDERR, "there is no program {$options['server']}\n" );
    exit( 1 );
}
define( 'TRANSPORT', $options['transport'] ?? 'curl' );
echo 'PHP ', PHP_VERSION, isset( $options['server'] ) ? ', ' . TRANSPORT : '', "\n";
require __DIR__ . '/without_server.php';
if ( isset( $options['server'] ) ) {
    define( 'PROGRAM', realpath( $options['server'] ) );
    require __DIR__ . '/processes.php';
    require __DIR__ . '/with_faults.php';
    require __DIR__ . '/with_service.php';
    require __DIR__ . '/readme.php';
}
if ( isset( $options['url'] ) ) {
    define( 'URL', $options['url'] );
    require __DIR__ . '/with_url.php';
}
finish();
