<?php
/** Starts and ends the processes of tests: the service, and servers that answer wrongly on purpose. */

declare( strict_types = 1 );

use Rashomon\Store;

final class Process {
    private const START_LIMIT = 60;

    public string $url = '';
    /** @var resource|null */
    private $process;
    private string $output;

    /** Starts a program, and waits for the address in its first line. */
    public function __construct( array $command, array $environment = [] ) {
        $this->output = folder() . '/output';
        $files = [ [ 'file', '/dev/null', 'r' ], [ 'file', $this->output, 'w' ], [ 'file', "$this->output.err", 'w' ] ];
        $this->process = proc_open( $command, $files, $_, folder(), $environment + getenv() );
        register_shutdown_function( [ $this, 'kill' ] );
        for ( $until = time() + self::START_LIMIT; time() < $until; usleep( 5000 ) ) {
            if ( preg_match( '#https?://[0-9.]+:\d+#', (string)file_get_contents( $this->output ), $match ) ) {
                $this->url = $match[0];
                return;
            }
            if ( !proc_get_status( $this->process )['running'] ) {
                break;
            }
        }
        throw new Failure( "$command[0] did not start: " . file_get_contents( "$this->output.err" ) );
    }

    /** The service with a store of its own. The settings are lines of its configuration. */
    public static function service( string $settings = '', ?string $data = null, ?string $listen = null ): self {
        $file = folder() . '/rashomon.toml';
        file_put_contents( $file, $settings );
        return new self( [ PROGRAM, 'serve', '--config', $file, '--data', $data ?? folder() . '/data', '--listen',
            $listen ?? '127.0.0.1:0' ] );
    }

    /** A server that has a fault. */
    public static function faulty( string $fault ): self {
        return new self( [ PHP_BINARY, __DIR__ . '/faulty_server.php', $fault ] );
    }

    /** The number of requests of which a faulty server has received the head. */
    public function requests(): int {
        return substr_count( file_get_contents( $this->output ), "request\n" );
    }

    public function address(): string {
        return explode( '://', $this->url )[1];
    }

    /** Ends the process at once, as a crash does. */
    public function kill(): void {
        if ( $this->process ) {
            proc_terminate( $this->process, 9 );
            proc_close( $this->process );
            $this->process = null;
        }
    }
}

/** Makes a folder that is deleted at the end. */
function folder(): string {
    $folder = sys_get_temp_dir() . '/rashomon-php-' . bin2hex( random_bytes( 8 ) );
    mkdir( $folder );
    register_shutdown_function( static function () use ( $folder ) {
        // Functions that are registered later kill the processes. The folder is deleted after that.
        register_shutdown_function( 'delete_folder', $folder );
    } );
    return $folder;
}

function delete_folder( string $folder ): void {
    foreach ( new RecursiveIteratorIterator( new RecursiveDirectoryIterator( $folder, FilesystemIterator::SKIP_DOTS ),
        RecursiveIteratorIterator::CHILD_FIRST ) as $file ) {
        $file->isDir() && !$file->isLink() ? rmdir( $file->getPathname() ) : unlink( $file->getPathname() );
    }
    rmdir( $folder );
}

/** A URL at which nothing listens. */
function refused_url(): string {
    $socket = stream_socket_server( 'tcp://127.0.0.1:0' );
    $name = stream_socket_get_name( $socket, false );
    fclose( $socket );
    return "http://$name";
}

/** A store over servers, with the transport of this run. */
function store( array $servers, array $options = [] ): Store {
    return new Store( [ '/' => [ 'servers' => $servers ] ],
        $options + [ 'domain' => 'enwiki', 'transport' => TRANSPORT, 'connect_timeout' => 5, 'timeout' => 30 ] );
}
