<?php
/** Tests without a server: the registry, repeats with a transport of the test, encoding, and wrong input. */

declare( strict_types = 1 );

use Rashomon\Answer;
use Rashomon\Result;
use Rashomon\Servers;
use Rashomon\Store;
use Rashomon\Transport;
use function Rashomon\path;

/** Answers as a function of the test says, and records each try. */
final class ScriptedTransport implements Transport {
    /** @var string[] Each try, as `server method path`. */
    public array $tries = [];
    public array $requests = [];
    /** @var callable */
    private $answer;

    public function __construct( ?callable $answer = null ) {
        $this->answer = $answer ?? static fn () => [ new Result( 200 ), self::DONE ];
    }

    public function send( array $requests, callable $server, callable $finished ): void {
        foreach ( $requests as $index => $request ) {
            do {
                $url = $server( $index );
                $this->tries[] = "$url {$request['method']} {$request['path']}";
                $this->requests[] = $request;
                [ $result, $outcome ] = ( $this->answer )( $url, $request );
            } while ( $finished( $index, $result, $outcome ) );
        }
    }
}

/** Records what it is asked, and answers with its name. */
final class LocalBackend {
    public array $asked = [];
    private string $name;

    public function __construct( string $name ) {
        $this->name = $name;
    }

    public function run( array $requests ): array {
        $this->asked[] = $requests;
        return array_map( fn () => [ 'status' => 200, 'headers' => [ 'X-Name' => $this->name ], 'body' => $this->name ],
            $requests );
    }
}

function scripted( ScriptedTransport $transport, array $servers, array $options = [] ): Store {
    return new Store( [ '/' => [ 'servers' => $servers ] ],
        $options + [ 'domain' => 'enwiki', 'transport' => $transport ] );
}

function local( array $names, array $options = [] ): Store {
    return new Store( array_combine( $names, array_map( static fn ( $name ) => new LocalBackend( $name ), $names ) ),
        $options + [ 'domain' => 'enwiki' ] );
}

test( 'longest prefix of whole segments wins', static function () {
    $store = local( [ '/', '/math', '/math-png', '/page/Help', '/page/Help/Old', '//dewiki', '//dewiki/math' ] );
    foreach ( [
        '/math-png/a.png' => '/math-png', '/math-png' => '/math-png', '/math-png?x' => '/math-png',
        '/math-png2/a.png' => '/', '/math/a' => '/math', '/mat' => '/', '/' => '/', '//otherwiki' => '/',
        '/m%61th/a' => '/math', '/page/Help?rev/' => '/page/Help', '/page/Help/Oldest?rev/' => '/page/Help',
        '/page/Help%2FOld?rev/' => '/page/Help/Old', '/page/Helper?rev/math/' => '/', '//otherwiki/math/a' => '/',
        '//enwiki/math/a' => '/math', '//dewiki/math/a' => '//dewiki/math', '//dewiki/math-png/a' => '//dewiki',
        '//dewiki?x' => '//dewiki', '//dewiki2/math/a' => '/',
    ] as $path => $prefix ) {
        same( $prefix, $store->get( $path )->body, $path );
    }
} );

test( 'results are in the order of the requests over several backends', static function () {
    $transport = new ScriptedTransport( static fn ( $_, $request ) => [ new Result( 200, [], $request['path'] ), 0 ] );
    $local = new LocalBackend( 'local' );
    $store = new Store( [ '/' => [ 'servers' => [ 'http://a' ] ], '/here' => $local ],
        [ 'domain' => 'enwiki', 'transport' => $transport ] );
    $results = $store->run( [ [ 'GET', '/here/1' ], [ 'GET', '/x' ], [ 'GET', '/here/2' ], [ 'GET', '//dewiki/y' ] ] );
    same( [ 'local', '/v1/enwiki/x', 'local', '/v1/dewiki/y' ], array_column( $results, 'body' ) );
    same( [ 0, 1, 2, 3 ], array_keys( $results ) );
    same( 1, count( $local->asked ), 'calls of the backend' );
    same( 'local', $results[0]->headers['x-name'] );
} );

test( 'requests may be arguments of their own', static function () {
    $store = local( [ '/' ] );
    same( 2, count( $store->run( [ 'GET', '/pageviews/Foo' ], [ 'POST', '/clicks/Foo', [ 'increment' => 1 ] ] ) ) );
    same( 1, count( $store->run( [ 'GET', '/pageviews/Foo' ] ) ) );
    same( [], $store->run( [] ) );
    same( 200, $store->GET( '/pageviews/Foo' )->status );
} );

test( 'single request may be given by its members', static function () {
    $transport = new ScriptedTransport();
    $store = scripted( $transport, [ 'http://a' ] );
    same( 200, $store->run( 'PUT', '/math-png/a.png', 'bytes' )->status );
    same( 200, $store->run( 'PUT', '/math-png/a.png', 'bytes', [ 'headers' => [ 'Content-type' => 'image/png' ] ] )->status );
    same( 200, $store->run( 'DELETE', '/math-png/a.png' )->status );
    same( 200, $store->run( 'GET', '/math-png/a.png', null, [ 'headers' => [ 'If-Match' => '"x"' ] ] )->status );
    same( [ 'bytes', 'bytes', null, null ], array_column( $transport->requests, 'body' ) );
    same( [ [], [ 'content-type' => 'image/png' ], [], [ 'if-match' => '"x"' ] ],
        array_column( $transport->requests, 'headers' ) );
    foreach ( [ [ 'PUT' ], [ 'PUT', '/a', 'x', [ 'Content-Type' => 'a/b' ] ], [ 'PUT', '/a', 'x', 'headers' ],
        [ 'PUT', '/a', 'x', [ 'headers' => [] ], 'more' ], [ 5 ], [ null ] ] as $wrong ) {
        refuses( 'a request is', static fn () => $store->run( ...$wrong ) );
    }
    same( 4, count( $transport->tries ) );
} );

test( 'list is read part by part', static function () {
    $json = [ 'content-type' => 'application/json; profile="urn:rashomon:entry-list/1.0"' ];
    $transport = new ScriptedTransport( static function ( $_, $request ) use ( $json ) {
        $parts = [
            '/v1/enwiki/timeseries/?gt=2012-02%20a&limit=2' => '{"entries":[{"key":"a"},{"key":"b"}],"next":"?limit=2&after=b"}',
            '/v1/enwiki/timeseries/?limit=2&after=b' => '{"entries":[{"key":"c"}]}',
            '/v1/enwiki/' => '{"buckets":[{"name":"timeseries"}]}',
            '/v1/enwiki/elsewhere/' => '{"entries":[],"next":"http://evil/"}', '/v1/enwiki/none/' => '{}',
        ];
        return [ new Result( 200, $json, $parts[$request['path']] ), Transport::DONE ];
    } );
    $store = scripted( $transport, [ 'http://a' ] );
    $entries = $store->entries( '/timeseries/', [ 'gt' => '2012-02 a', 'limit' => 2 ] );
    same( [ 'key' => 'a' ], $entries->current() );
    same( 1, count( $transport->tries ), 'the second part is not needed yet:' );
    same( [ [ 'key' => 'a' ], [ 'key' => 'b' ], [ 'key' => 'c' ] ], iterator_to_array( $entries ) );
    same( [ [ 'name' => 'timeseries' ] ], iterator_to_array( $store->entries( '/' ) ) );
    foreach ( [ '/timeseries', '/timeseries/?limit=1', '' ] as $path ) {
        refuses( 'ends with a slash', static fn () => $store->entries( $path )->current() );
    }
    foreach ( [ '/elsewhere/', '/none/' ] as $path ) {
        broken( 'no list', static fn () => $store->entries( $path )->current() );
    }
    $problem = new Result( 404, [ 'content-type' => 'application/problem+json' ], '{"detail":"no bucket"}' );
    foreach ( [ 'no bucket' => $problem, 'refused' => new Result( 0, [], '', 'refused' ) ] as $part => $result ) {
        $failing = new ScriptedTransport( static fn () => [ $result, Transport::DONE ] );
        broken( $part, static fn () => scripted( $failing, [ 'http://a' ] )->entries( '/a/' )->current() );
    }
} );

test( 'local backend gets whole requests and no token', static function () {
    $local = new LocalBackend( 'local' );
    $store = new Store( [ '/' => $local ], [ 'domain' => 'enwiki', 'token' => 'secret' ] );
    $store->run( [ [ 'PUT', '/math-png/a.png', 'bytes', 'headers' => [ 'Content-Type' => 'image/png' ] ],
        [ 'POST', '//dewiki/clicks/a', [ 'increment' => 1 ] ] ] );
    same( [ [ 'PUT', '//enwiki/math-png/a.png', 'bytes', 'headers' => [ 'content-type' => 'image/png' ] ],
        [ 'POST', '//dewiki/clicks/a', [ 'increment' => 1 ], 'headers' => [] ] ], $local->asked[0] );
    same( false, strpos( serialize( $local->asked ), 'secret' ) );
} );

test( 'store is a local backend of another store', static function () {
    $inner = new LocalBackend( 'inner' );
    $outer = new Store( [ '/' => new Store( [ '/' => $inner ], [ 'domain' => 'dewiki' ] ) ], [ 'domain' => 'enwiki' ] );
    same( 'inner', $outer->get( '/page/A?rev/' )->body );
    same( '//enwiki/page/A?rev/', $inner->asked[0][0][1] );
} );

test( 'failed local backend does not fail the others', static function () {
    foreach ( [
        'RuntimeException: broken' => static function () { throw new RuntimeException( 'broken' ); },
        'one result for each request' => static fn () => [],
        'TypeError' => static fn () => [ [ 'status' => 'no number' ] ],
    ] as $part => $run ) {
        $bad = new class( $run ) {
            private Closure $run;
            public function __construct( Closure $run ) {
                $this->run = $run;
            }
            public function run( array $requests ): array {
                return ( $this->run )();
            }
        };
        $store = new Store( [ '/' => new LocalBackend( 'good' ), '/bad' => $bad ], [ 'domain' => 'enwiki' ] );
        [ $failed, $good ] = $store->run( [ [ 'GET', '/bad/1' ], [ 'GET', '/good' ] ] );
        same( [ 0, 'good' ], [ $failed->status, $good->body ] );
        contains( $part, $failed->error );
        contains( "'//enwiki/bad'", $failed->error );
    }
} );

test( 'every request is repeated at another server if no byte was sent', static function () {
    foreach ( [ [ 'GET', '/a' ], [ 'POST', '/a', 'x' ], [ 'PUT', '/a', 'x', 'headers' => [ 'If-Match' => '"1"' ] ] ] as $request ) {
        $transport = new ScriptedTransport( static fn () => [ new Result( 0, [], '', 'refused' ), Transport::UNSENT ] );
        $result = scripted( $transport, [ 'http://a', 'http://b', 'http://c' ] )->run( [ $request ] )[0];
        same( [ 0, 'refused' ], [ $result->status, $result->error ] );
        same( 3, count( array_unique( $transport->tries ) ), $request[0] );
    }
} );

test( 'after bytes were sent only harmless requests are repeated', static function () {
    foreach ( [
        [ 2, [ 'GET', '/page/A?rev/latest/html', null, 'headers' => [ 'If-None-Match' => '"1"' ] ] ],
        [ 2, [ 'HEAD', '/page/A?rev/latest/html' ] ],
        [ 1, [ 'PUT', '/math-png/a', 'x' ] ],
        [ 1, [ 'PUT', '/math-png/a', 'x', 'headers' => [ 'if-none-match' => '*' ] ] ],
        [ 1, [ 'DELETE', '/math-png/a' ] ],
        [ 1, [ 'DELETE', '/math-png/a', null, 'headers' => [ 'If-Match' => '"1"' ] ] ],
        [ 1, [ 'PUT', '/page/A?rev/x/html', 'x', 'headers' => [ 'If-Unmodified-Since' => 'x' ] ] ],
        [ 2, [ 'POST', '/page/A?rev/', [ '_rev' => 1 ] ] ],
        [ 1, [ 'POST', '/page/A?rev/1/', [ 'html' => 'x' ] ] ],
        [ 1, [ 'POST', '/page/A%3Frev/', [ 'html' => 'x' ] ] ],
        [ 1, [ 'POST', '/clicks/Foo', [ 'increment' => 1 ] ] ],
        [ 2, [ 'POST', '/clicks/Foo', [ 'increment' => 1 ], 'headers' => [ 'Idempotency-Key' => 'k' ] ] ],
        [ 1, [ 'POST', '//batch', '[]' ] ],
    ] as [ $tries, $request ] ) {
        $transport = new ScriptedTransport( static fn () => [ new Result( 0, [], '', 'cut' ), Transport::SENT ] );
        scripted( $transport, [ 'http://a', 'http://b' ] )->run( [ $request ] );
        same( $tries, count( $transport->tries ), "$request[0] $request[1]" );
        same( $tries === 2, $transport->requests[0]['repeat'] );
    }
} );

test( 'answers and errors of the client are not repeated', static function () {
    foreach ( [ 200, 404, 500, 503 ] as $status ) {
        $transport = new ScriptedTransport( static fn () => [ new Result( $status ), Transport::DONE ] );
        same( $status, scripted( $transport, [ 'http://a', 'http://b' ] )->get( '/a' )->status );
        same( 1, count( $transport->tries ) );
    }
} );

test( 'tries are bounded', static function () {
    $servers = [ 'http://a', 'http://b', 'http://c', 'http://d', 'http://e' ];
    foreach ( [ [ 3, [] ], [ 1, [ 'tries' => 1 ] ], [ 4, [ 'tries' => 4 ] ], [ 5, [ 'tries' => 9 ] ] ] as [ $tries, $options ] ) {
        $transport = new ScriptedTransport( static fn () => [ new Result( 0, [], '', 'x' ), Transport::UNSENT ] );
        scripted( $transport, $servers, $options )->get( '/a' );
        same( $tries, count( array_unique( $transport->tries ) ) );
        same( $tries, count( $transport->tries ) );
    }
} );

test( 'servers are used in turn, and a failed one is left out', static function () {
    $transport = new ScriptedTransport( static fn ( $url ) => $url === 'http://b'
        ? [ new Result( 0, [], '', 'x' ), Transport::UNSENT ] : [ new Result( 200 ), Transport::DONE ] );
    $store = scripted( $transport, [ 'http://a', 'http://b/', 'http://c' ] );
    for ( $i = 0; $i < 9; $i++ ) {
        same( 200, $store->get( '/x' )->status );
    }
    $counts = array_count_values( $transport->tries );
    same( 1, $counts['http://b GET /v1/enwiki/x'] );
    same( true, $counts['http://a GET /v1/enwiki/x'] >= 4 && $counts['http://c GET /v1/enwiki/x'] >= 4 );
} );

test( 'failed server is probed by one request after a time', static function () {
    $servers = new Servers( '/', [ 'servers' => [ 'http://a', 'http://b' ] ], [ 'probe_after' => 10 ] );
    $servers->report( 0, false, 100.0 );
    same( [ 1, 1, 1 ], [ $servers->choose( [], 101.0 ), $servers->choose( [], 105.0 ), $servers->choose( [], 109.9 ) ] );
    $chosen = [ $servers->choose( [], 110.0 ), $servers->choose( [], 110.0 ), $servers->choose( [], 110.0 ) ];
    same( [ 1, 2 ], [ array_count_values( $chosen )[0], array_count_values( $chosen )[1] ] );
    $servers->report( 0, false, 111.0 );
    same( [ 1, 1 ], [ $servers->choose( [], 112.0 ), $servers->choose( [], 120.9 ) ] );
    $servers->report( 0, true, 121.0 );
    $chosen = [ $servers->choose( [], 121.0 ), $servers->choose( [], 121.0 ) ];
    sort( $chosen );
    same( [ 0, 1 ], $chosen );
} );

test( 'if all servers are left out, the one that failed first is tried', static function () {
    $servers = new Servers( '/', [ 'servers' => [ 'http://a', 'http://b' ] ], [ 'probe_after' => 10 ] );
    $servers->report( 1, false, 100.0 );
    $servers->report( 0, false, 101.0 );
    same( [ 1, 0 ], [ $servers->choose( [], 102.0 ), $servers->choose( [ 1 ], 102.0 ) ] );
} );

test( 'token is sent, that of a backend first, and its file is read again', static function () {
    $transport = new ScriptedTransport();
    $file = tempnam( sys_get_temp_dir(), 'token' );
    file_put_contents( $file, "first\n" );
    $store = new Store( [ '/' => [ 'servers' => [ 'http://a' ] ], '/b' => [ 'servers' => [ 'http://b' ], 'token' => 'own' ] ],
        [ 'domain' => 'enwiki', 'transport' => $transport, 'token_file' => $file ] );
    $store->run( [ 'GET', '/a' ], [ 'GET', '/b' ] );
    file_put_contents( $file, "second\n" );
    $store->get( '/a' );
    unlink( $file );
    $store->get( '/a' );
    same( [ 'Bearer first', 'Bearer own', 'Bearer second', 'Bearer second' ],
        array_map( static fn ( $request ) => $request['headers']['authorization'], $transport->requests ) );
    $transport = new ScriptedTransport();
    scripted( $transport, [ 'http://a' ] )->get( '/a' );
    same( [], $transport->requests[0]['headers'] );
} );

test( 'paths are sent as given', static function () {
    $transport = new ScriptedTransport();
    $store = scripted( $transport, [ 'https://[::1]:8443' ] );
    $store->run( [ 'GET', '/page/A%2fb/..//c?rev/latest/html' ], [ 'GET', '/' ], [ 'POST', '//batch', '[]' ], [ 'GET', '//a.b/x' ],
        [ 'GET', '//zh_min_nanwiki/x' ] );
    same( [ '/v1/enwiki/page/A%2fb/..//c?rev/latest/html', '/v1/enwiki/', '/v1/batch', '/v1/a.b/x', '/v1/zh_min_nanwiki/x' ],
        array_column( $transport->requests, 'path' ) );
} );

test( 'array is sent as form fields', static function () {
    $transport = new ScriptedTransport();
    $store = scripted( $transport, [ 'http://a' ] );
    $store->run( [ 'POST', '/a', [ '_rev' => 12, 'html' => "a&b=ü +\n", '_minor' => true, '_http-equiv.html' => '{}' ] ],
        [ 'PUT', '/a', '' ], [ 'POST', '/a', 'x', 'headers' => [ 'Content-Type' => ' text/plain ' ] ] );
    same( '_rev=12&html=a%26b%3D%C3%BC+%2B%0A&_minor=1&_http-equiv.html=%7B%7D', $transport->requests[0]['body'] );
    same( 'application/x-www-form-urlencoded', $transport->requests[0]['headers']['content-type'] );
    same( [ '', [] ], [ $transport->requests[1]['body'], $transport->requests[1]['headers'] ] );
    same( [ 'content-type' => 'text/plain' ], $transport->requests[2]['headers'] );
} );

test( 'titles and keys are encoded', static function () {
    same( '/page/Main_Page', path( 'page', 'Main Page' ) );
    same( '/page/Kitchen/%C3%8Ele_aux_Phoques', path( 'page', 'Kitchen/Île aux Phoques' ) );
    same( '/page/Who%3F_100%25_%22%23%5B%5D%7C%2B%26%3D%27', path( 'page', 'Who? 100% "#[]|+&=\'' ) );
    same( '/page/-_.~;:@$!*(),/aZ09', path( 'page', '-_.~;:@$!*(),/aZ09' ) );
    same( '/math-png/a%20b_c', path( 'math-png', 'a b_c' ) );
    foreach ( [ '' => '1,024 bytes', str_repeat( 'x', 1025 ) => '1,024 bytes', "\xff" => 'UTF-8', "a\nb" => 'remove it',
        'a/../b' => 'rename it', '.' => 'rename it' ] as $wrong => $part ) {
        refuses( $part, static fn () => path( 'page', $wrong ) );
    }
    refuses( 'name of a bucket', static fn () => path( 'Page', 'A' ) );
} );

test( 'result gives JSON and problems', static function () {
    $result = new Result( 200, [ 'Content-Type' => 'application/json; profile="urn:x"' ], '{"rev":9223372036854775807}' );
    same( [ true, [ 'rev' => PHP_INT_MAX ], null ], [ $result->ok(), $result->json(), $result->problem() ] );
    $result = new Result( 404, [ 'content-type' => 'application/problem+json' ], '{"type":"urn:t","detail":"d"}' );
    same( [ false, 'urn:t', '', 'd' ], [ $result->ok(), $result->problem()['type'], $result->problem()['title'],
        $result->problem()['detail'] ] );
    foreach ( [ new Result( 200, [ 'content-type' => 'text/html' ], '1' ), new Result( 0, [], '', 'refused' ),
        new Result( 200, [ 'content-type' => 'application/json' ], '{' ) ] as $result ) {
        try {
            $result->json();
            throw new Failure( 'json() returned' );
        } catch ( UnexpectedValueException $error ) {
            same( null, $result->problem() );
        }
    }
    contains( 'refused', ( static function () {
        try {
            ( new Result( 0, [], '', 'refused' ) )->json();
        } catch ( UnexpectedValueException $error ) {
            return $error->getMessage();
        }
    } )() );
} );

test( 'get follows redirects inside the store only', static function () {
    foreach ( [
        '?rev/x/html' => 'http://a GET /v1/enwiki/page/A?rev/x/html',
        '/v1/enwiki/page/A?rev/x/html' => 'http://a GET /v1/enwiki/page/A?rev/x/html',
        '/v1/dewiki/page/B?rev/' => 'http://a GET /v1/dewiki/page/B?rev/',
        '/store/v1/dewiki/page/v1/a?rev/' => 'http://a GET /v1/dewiki/page/v1/a?rev/',
        'http://evil/v1/enwiki/page/A' => null, '//evil/v1/x' => null, '/other' => null, "?a b" => null, '' => null,
    ] as $location => $next ) {
        $transport = new ScriptedTransport( static fn ( $_, $request ) => [ $request['path'] === '/v1/enwiki/page/A?rev/1/html'
            ? new Result( 302, [ 'location' => $location ] ) : new Result( 200 ), Transport::DONE ] );
        $result = scripted( $transport, [ 'http://a' ] )->get( '/page/A?rev/1/html' );
        same( [ $next === null ? 302 : 200, $next ], [ $result->status, $transport->tries[1] ?? null ], $location );
    }
    $transport = new ScriptedTransport( static fn () => [ new Result( 302, [ 'location' => '?x' ] ), Transport::DONE ] );
    same( 302, scripted( $transport, [ 'http://a' ] )->get( '/page/A?x' )->status );
    same( 6, count( $transport->tries ) );
    same( 302, scripted( $transport, [ 'http://a' ] )->run( [ 'GET', '/page/A?x' ] )[0]->status );
    same( 7, count( $transport->tries ) );
} );

test( 'head of an answer is read', static function () {
    $answer = new Answer( 10 );
    foreach ( [ 'HTTP/1.1 103 Early Hints', 'Link: x', '', 'HTTP/1.1 200 OK', 'A: 1', 'a:2', 'B: x:y' ] as $line ) {
        same( strlen( $line ) + 2, $answer->line( "$line\r\n" ) );
    }
    same( [ 200, [ 'a' => '1, 2', 'b' => 'x:y' ] ], [ $answer->status, $answer->headers ] );
    same( [ 10, 0 ], [ $answer->append( '0123456789' ), $answer->append( 'x' ) ] );
    contains( 'max_answer', $answer->excess );
    same( 0, $answer->line( str_repeat( 'x', 70000 ) ) );
} );

test( 'wrong registry is refused', static function () {
    $make = static fn ( $registry ) => static fn () => new Store( $registry, [ 'domain' => 'enwiki' ] );
    $good = [ '/' => [ 'servers' => [ 'http://a' ] ] ];
    refuses( "add a backend for all remaining paths", $make( [] ) );
    refuses( "no '/'", $make( [ '/page' => $good['/'] ] ) );
    foreach ( [ 'page', '/page/', '//Enwiki', '//', '//enwiki/', '/a?b', '', 0 ] as $prefix ) {
        refuses( 'such as \'/math-png\'', $make( $good + [ $prefix => $good['/'] ] ) );
    }
    refuses( 'has two backends', $make( $good + [ '/a' => $good['/'], '//enwiki/a' => $good['/'] ] ) );
    foreach ( [ 'http://a', null, new stdClass() ] as $backend ) {
        refuses( 'or an object with run', $make( [ '/' => $backend ] ) );
    }
    refuses( 'has no servers', $make( [ '/' => [ 'servers' => [] ] ] ) );
    refuses( 'has no servers', $make( [ '/' => [] ] ) );
    refuses( "unknown member 'server'", $make( [ '/' => [ 'server' => [ 'http://a' ] ] ] ) );
    foreach ( [ 'a:1', 'ftp://a', 'http://a/store', 'http://u:p@a', 'http://a?b', "http://a\n", 5 ] as $server ) {
        refuses( "write 'http://host:port'", $make( [ '/' => [ 'servers' => [ $server ] ] ] ) );
    }
} );

test( 'wrong option is refused', static function () {
    $make = static fn ( $options ) => static fn () => new Store( [ '/' => [ 'servers' => [ 'http://a' ] ] ],
        $options + [ 'domain' => 'enwiki' ] );
    refuses( "no option 'timout'; the options are", $make( [ 'timout' => 1 ] ) );
    foreach ( [ null, 'En Wiki', '', 5, '_a', 'batch', 'tokens', 'changes', 'admin' ] as $domain ) {
        refuses( "'domain' names the wiki", $make( [ 'domain' => $domain ] ) );
    }
    foreach ( [ 0, -1, '5', NAN, INF, null ] as $time ) {
        refuses( "'timeout' is a number of seconds", $make( [ 'timeout' => $time ] ) );
    }
    foreach ( [ 'tries', 'max_answer', 'concurrency' ] as $name ) {
        refuses( "'$name' is a whole number", $make( [ $name => 0 ] ) );
        refuses( "'$name' is a whole number", $make( [ $name => 1.5 ] ) );
    }
    refuses( "'curl', 'streams'", $make( [ 'transport' => 'http' ] ) );
    refuses( 'readable PEM file', $make( [ 'ca_file' => '/no/such/file' ] ) );
    foreach ( [ '', "a\nb", 'Bearer a', 5 ] as $token ) {
        refuses( 'without \'Bearer\'', $make( [ 'token' => $token ] ) );
    }
    refuses( "'token_file' names a readable file", $make( [ 'token_file' => '/no/such/file' ] ) );
    refuses( 'not both', $make( [ 'token' => 'a', 'token_file' => __FILE__ ] ) );
} );

test( 'wrong request is refused, and no request of its run is sent', static function () {
    $transport = new ScriptedTransport();
    $store = scripted( $transport, [ 'http://a' ] );
    foreach ( [
        [ 'body and headers may be left out', [ 'GET' ] ],
        [ 'body and headers may be left out', [ 'GET', '/a', null, [ 'If-Match' => 'x' ] ] ],
        [ 'body and headers may be left out', [ 'GET', '/a', 'header' => [] ] ],
        [ 'body and headers may be left out', [ 5, '/a' ] ],
        [ 'write one of GET', [ 'get', '/a' ] ],
        [ 'write one of GET', [ "GET / HTTP/1.1\r\nX: y\r\n", '/a' ] ],
        [ 'begins with \'/\'', [ 'GET', 'page/A' ] ],
        [ 'begins with \'/\'', [ 'GET', '' ] ],
        [ "Rashomon\\path( 'page', \$title )", [ 'GET', '/page/Main Page' ] ],
        [ "Rashomon\\path( 'page', \$title )", [ 'GET', '/page/Île' ] ],
        [ "Rashomon\\path( 'page', \$title )", [ 'GET', '/page/A#b' ] ],
        [ "Rashomon\\path( 'page', \$title )", [ 'GET', "/page/A HTTP/1.1\r\nHost: evil" ] ],
        [ 'names no domain', [ 'GET', '///a' ] ],
        [ 'names no domain', [ 'GET', '//En' ] ],
        [ 'a GET has no body', [ 'GET', '/a', 'x' ] ],
        [ 'array of form fields', [ 'POST', '/a', 5 ] ],
        [ "form field or list parameter 'html'", [ 'POST', '/a', [ 'html' => null ] ] ],
        [ "form field or list parameter 'html'", [ 'POST', '/a', [ 'html' => [ 'x' ] ] ] ],
        [ "'headers' is an array", [ 'GET', '/a', 'headers' => 'If-Match: x' ] ],
        [ 'no name of a header', [ 'GET', '/a', 'headers' => [ 'If-Match: x' ] ] ],
        [ 'no name of a header', [ 'GET', '/a', 'headers' => [ "X\r\nY" => 'x' ] ] ],
        [ 'remove line breaks', [ 'GET', '/a', 'headers' => [ 'X-A' => "x\r\nY: z" ] ] ],
        [ 'remove line breaks', [ 'GET', '/a', 'headers' => [ 'X-A' => "x\n" ] ] ],
        [ 'remove line breaks', [ 'GET', '/a', 'headers' => [ 'X-A' => [ 'x' ] ] ] ],
        [ "option 'token'", [ 'GET', '/a', 'headers' => [ 'Authorization' => 'Bearer x' ] ] ],
        [ 'manages the header \'content-length\'', [ 'PUT', '/a', 'x', 'headers' => [ 'Content-Length' => 1 ] ] ],
        [ 'there twice', [ 'GET', '/a', 'headers' => [ 'X-A' => '1', 'x-a' => '2' ] ] ],
    ] as [ $part, $request ] ) {
        refuses( $part, static fn () => $store->run( [ [ 'GET', '/good' ], $request ] ) );
    }
    refuses( 'a request is', static fn () => $store->run( [ 'no array' => 5 ] ) );
    same( [], $transport->tries );
} );
