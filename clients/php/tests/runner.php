<?php
/** A small test runner: `test` runs a test, the other functions check, and `finish` prints the totals. */

declare( strict_types = 1 );

final class Failure extends Exception {
}

final class Totals {
    public static int $passed = 0;
    public static int $failed = 0;
}

error_reporting( E_ALL );
// A warning or a notice fails the test in which it occurs.
set_error_handler( static function ( int $level, string $message, string $file, int $line ): bool {
    throw new ErrorException( $message, 0, $level, $file, $line );
} );

function test( string $name, callable $body ): void {
    try {
        $body();
        Totals::$passed++;
    } catch ( Throwable $error ) {
        Totals::$failed++;
        $at = $error instanceof Failure ? $error->getTrace()[0] : [];
        printf( "failed: %s\n    %s\n    %s:%d\n", $name, $error->getMessage(), basename( $at['file'] ?? $error->getFile() ),
            $at['line'] ?? $error->getLine() );
    }
}

/**
 * @param mixed $expected
 * @param mixed $actual
 */
function same( $expected, $actual, string $what = '' ): void {
    if ( $expected !== $actual ) {
        throw new Failure( "$what expected " . var_export( $expected, true ) . ', got ' . var_export( $actual, true ) );
    }
}

function contains( string $part, ?string $text ): void {
    if ( strpos( (string)$text, $part ) === false ) {
        throw new Failure( "expected a text with '$part', got " . var_export( $text, true ) );
    }
}

function refuses( string $part, callable $body ): void {
    try {
        $body();
    } catch ( InvalidArgumentException $error ) {
        contains( $part, $error->getMessage() );
        return;
    }
    throw new Failure( "expected an InvalidArgumentException with '$part'" );
}

function broken( string $part, callable $body ): void {
    try {
        $body();
    } catch ( UnexpectedValueException $error ) {
        contains( $part, $error->getMessage() );
        return;
    }
    throw new Failure( "expected an UnexpectedValueException with '$part'" );
}

function finish(): void {
    printf( "%d passed, %d failed\n", Totals::$passed, Totals::$failed );
    exit( Totals::$failed === 0 && Totals::$passed > 0 ? 0 : 1 );
}
