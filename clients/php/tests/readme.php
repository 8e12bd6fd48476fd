<?php
/** Runs the programs of README.md against the service, and compares what they print. */

declare( strict_types = 1 );

/** @return array<int, array{string, string}> The blocks of code: language and text. */
function blocks(): array {
    preg_match_all( '/^```(\w+)\n(.*?)^```$/ms', file_get_contents( __DIR__ . '/../README.md' ), $blocks, PREG_SET_ORDER );
    return array_map( static fn ( $block ) => [ $block[1], $block[2] ], $blocks );
}

$folder = folder();
copy( __DIR__ . '/../Rashomon.php', "$folder/Rashomon.php" );
$blocks = blocks();

test( 'README begins with the command that starts the server', static function () use ( $blocks ) {
    same( [ 'console', "$ rashomon serve --store memory:\n" ], $blocks[0] );
} );
$service = new Process( [ PROGRAM, 'serve', '--store', 'memory:', '--listen', '127.0.0.1:0' ] );
$addresses = [ 'http://127.0.0.1:7231' => $service->url, 'http://127.0.0.1:7232' => refused_url() ];
// Without the settings of the system, PHP has no extension curl on Debian.
$php = TRANSPORT === 'curl' ? [ PHP_BINARY ] : [ PHP_BINARY, '-n' ];

foreach ( $blocks as $number => [ $language, $code ] ) {
    if ( $language !== 'php' ) {
        continue;
    }
    test( "program $number of README.md", static function () use ( $blocks, $number, $code, $folder, $addresses, $php ) {
        file_put_contents( "$folder/program.php", strtr( $code, $addresses ) );
        exec( implode( ' ', array_map( 'escapeshellarg', [ ...$php, "$folder/program.php" ] ) ) . ' 2>&1', $lines, $status );
        same( [ 'text', $blocks[$number + 1][1] ?? '' ], [ $blocks[$number + 1][0] ?? '', implode( "\n", $lines ) . "\n" ] );
        same( 0, $status );
    } );
}

test( 'first program of README.md may be run again', static function () use ( $blocks, $folder, $addresses, $php ) {
    file_put_contents( "$folder/program.php", strtr( $blocks[1][1], $addresses ) );
    exec( implode( ' ', array_map( 'escapeshellarg', [ ...$php, "$folder/program.php" ] ) ), $lines );
    same( '200 Unchanged', $lines[0] );
} );

test( 'README lists the options', static function () {
    $constants = ( new ReflectionClass( Rashomon\Store::class ) )->getConstants();
    preg_match_all( '/^\| `(\w+)` \| ([^|]*) \|/m', strstr( file_get_contents( __DIR__ . '/../README.md' ), '## Options' ), $rows );
    same( array_keys( $constants['OPTIONS'] ), $rows[1] );
    foreach ( array_combine( $rows[1], $rows[2] ) as $name => $default ) {
        if ( is_numeric( $default ) ) {
            same( (float)$constants['OPTIONS'][$name], (float)$default, $name );
        }
    }
} );

$service->kill();
