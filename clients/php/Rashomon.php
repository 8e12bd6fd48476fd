<?php
/**
 * The PHP client of Rashomon, in one file without dependencies. README.md shows how to use it.
 *
 * PHP 7.4 or later. The extension curl is used if it is loaded; without it, requests are sent one after the other.
 */

declare( strict_types = 1 );

namespace Rashomon;

use InvalidArgumentException;

/**
 * Returns the path of a title or key in a bucket: `path( 'page', 'Who? Me' )` is `/page/Who%3F_Me`.
 *
 * Slashes stay, and everything else that is not allowed in a path is percent-encoded, such as `?` and `%`.
 * In the bucket `page`, a space becomes `_`; in the keys of other buckets, the two differ.
 *
 * @throws InvalidArgumentException if the bucket, the title or the key is invalid
 */
function path( string $bucket, string $key ): string {
    if ( !preg_match( '/^[a-z][a-z0-9-]{0,63}$/D', $bucket ) ) {
        throw new InvalidArgumentException( "'$bucket' is no name of a bucket: use 1 to 64 of a-z, 0-9 and '-',"
            . ' beginning with a letter' );
    }
    if ( $key === '' || strlen( $key ) > 1024 ) {
        throw new InvalidArgumentException( 'a title or key has 1 to 1,024 bytes; this one has ' . strlen( $key ) );
    }
    if ( !preg_match( '//u', $key ) ) {
        throw new InvalidArgumentException( 'a title or key is UTF-8: convert it, such as with mb_convert_encoding' );
    }
    if ( preg_match( '/[\x00-\x1f\x7f]/', $key ) ) {
        throw new InvalidArgumentException( 'a title or key has a control character: remove it' );
    }
    if ( array_intersect( explode( '/', $key ), [ '.', '..' ] ) ) {
        throw new InvalidArgumentException( "'$key' has a segment '.' or '..', which proxies remove: rename it" );
    }
    $key = $bucket === 'page' ? strtr( $key, ' ', '_' ) : $key;
    $raw = [ '%2F' => '/', '%3B' => ';', '%3A' => ':', '%40' => '@', '%24' => '$',
        '%21' => '!', '%2A' => '*', '%28' => '(', '%29' => ')', '%2C' => ',' ];
    return "/$bucket/" . strtr( rawurlencode( $key ), $raw );
}

/** The result of one request: an answer, or the reason why there is none. */
final class Result {
    /** The status of the answer, or 0 if there is none. */
    public int $status;
    /** @var array<string, string> The headers by their names in lower case. Repeated headers are joined by `, `. */
    public array $headers;
    /** The complete body, as it was received. An answer that was cut off is an error. */
    public string $body;
    /** The reason why there is no answer. Null if there is an answer, whatever its status. */
    public ?string $error;

    /** @param array<string, string> $headers */
    public function __construct( int $status, array $headers = [], string $body = '', ?string $error = null ) {
        $this->status = $status;
        $this->headers = array_change_key_case( $headers );
        $this->body = $body;
        $this->error = $error;
    }

    /** Whether the status is 200 to 299. */
    public function ok(): bool {
        return $this->status >= 200 && $this->status < 300;
    }

    /**
     * Returns the decoded body of a JSON answer. Objects become arrays.
     *
     * @return mixed
     * @throws \UnexpectedValueException if the answer is not JSON, or if there is none
     */
    public function json() {
        if ( !preg_match( '#^application/([a-z0-9.-]+\+)?json *(;|$)#i', $this->headers['content-type'] ?? '' ) ) {
            throw new \UnexpectedValueException( "the answer (status $this->status) has no JSON: "
                . ( $this->error ?? 'its content type is ' . ( $this->headers['content-type'] ?? 'missing' ) ) );
        }
        $value = json_decode( $this->body, true );
        if ( json_last_error() !== JSON_ERROR_NONE ) {
            throw new \UnexpectedValueException( 'the JSON of the answer is broken: ' . json_last_error_msg() );
        }
        return $value;
    }

    /**
     * Returns the members of a problem (RFC 9457), such as `type`, `title` and `detail`. Returns null if the answer
     * is no `application/problem+json`.
     */
    public function problem(): ?array {
        if ( !preg_match( '#^application/problem\+json *(;|$)#i', $this->headers['content-type'] ?? '' ) ) {
            return null;
        }
        $problem = json_decode( $this->body, true );
        return is_array( $problem ) ? $problem + [ 'type' => 'about:blank', 'title' => '', 'detail' => '' ] : null;
    }
}

/** Sends requests to HTTP servers. A program with its own HTTP library can pass an implementation as `transport`. */
interface Transport {
    /** The request has its final result: an answer, or an error that would occur with every server. */
    public const DONE = 0;
    /** The request failed, and no byte of it was sent. */
    public const UNSENT = 1;
    /** The request failed, and the server may have received it. */
    public const SENT = 2;

    /**
     * Sends requests until each has its final result.
     *
     * A request has the members `method`, `path`, `headers` (values by name), `body` (a string or null) and `repeat`.
     * Unless `repeat` is true, the transport must not send the request twice by itself.
     *
     * @param array<int, array> $requests
     * @param callable $server `fn( int $index ): string`: called before each try; returns `http://host:port`
     * @param callable $finished `fn( int $index, Result $result, int $outcome ): bool`: called after each try with a
     *     constant of this interface; returns whether to try again
     */
    public function send( array $requests, callable $server, callable $finished ): void;
}

/** A store behind a registry: sends each request to the backend of the longest prefix that matches the path. */
final class Store {
    private const OPTIONS = [ 'domain' => null, 'token' => null, 'token_file' => null, 'ca_file' => null,
        'transport' => null, 'connect_timeout' => 3.0, 'timeout' => 30.0, 'tries' => 3, 'probe_after' => 10.0,
        'max_answer' => 67108864, 'concurrency' => 20 ];
    private const METHODS = [ 'GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'OPTIONS' ];
    /** Headers that a request may not have, because they belong to the connection or have an option of their own. */
    private const OWN_HEADERS = [ 'authorization', 'connection', 'content-length', 'expect', 'host', 'te', 'trailer',
        'transfer-encoding', 'upgrade' ];
    private const DOMAIN = '[a-z0-9][a-z0-9._-]{0,127}';
    private const MAX_REDIRECTS = 5;

    private array $options;
    /** @var array<string, Servers|object> The backends by prefix with its domain, the longest prefix first. */
    private array $registry = [];
    private Transport $transport;

    /**
     * @param array<string, array|object> $registry The backends by prefix: `[ 'servers' => [ 'http://host:port' ] ]`,
     *     or an object with `run( array $requests ): array`. One prefix is `/`.
     * @param array<string, mixed> $options README.md lists them. `domain` is required.
     * @throws InvalidArgumentException if the registry or an option is wrong
     */
    public function __construct( array $registry, array $options ) {
        $this->options = self::checkOptions( $options );
        foreach ( $registry as $prefix => $backend ) {
            $prefix = (string)$prefix;
            if ( !preg_match( '#^/$|^(?://' . self::DOMAIN . ')?(/[^/?\x00-\x1f]+)*$#D', $prefix ) || $prefix === '' ) {
                throw new InvalidArgumentException( "the prefix '$prefix' is wrong: write a path inside the domain that"
                    . " begins with '/' and does not end with one, such as '/math-png'; '//dewiki' is for all paths of"
                    . " another domain, and '/' for all other paths" );
            }
            if ( is_array( $backend ) ) {
                $backend = new Servers( $prefix, $backend, $this->options );
            } elseif ( !is_object( $backend ) || !is_callable( [ $backend, 'run' ] ) ) {
                throw new InvalidArgumentException( "the backend of '$prefix' is wrong: write"
                    . " [ 'servers' => [ 'http://host:port' ] ], or an object with run( array \$requests ): array" );
            }
            $whole = $prefix === '/' ? '/' : $this->withDomain( $prefix );
            if ( isset( $this->registry[$whole] ) ) {
                throw new InvalidArgumentException( "the prefix '$prefix' has two backends: leave one out" );
            }
            $this->registry[$whole] = $backend;
        }
        if ( !isset( $this->registry['/'] ) ) {
            throw new InvalidArgumentException( "the registry has no '/': add a backend for all remaining paths" );
        }
        uksort( $this->registry, static fn ( $a, $b ) => strlen( (string)$b ) <=> strlen( (string)$a ) );
        $this->transport = self::makeTransport( $this->options );
    }

    /**
     * Runs requests, and returns their results in the same order.
     *
     * A request is `[ method, path, body, 'headers' => [ name => value ] ]`; body and headers may be left out. A body
     * is a string, or an array of form fields. A failed request does not fail the others: its result has the status 0.
     *
     * A single request may be given by its members: `run( 'PUT', $path, $body, [ 'headers' => [ name => value ] ] )`.
     * Then its result is returned without a list.
     *
     * @param array|string|null ...$requests One list of requests, each request as an argument of its own, or the
     *     members of one request
     * @return Result[]|Result
     * @throws InvalidArgumentException if a request is wrong; then none is sent
     */
    public function run( ...$requests ) {
        if ( is_string( $requests[0] ?? null ) ) {
            if ( is_array( $requests[3] ?? null ) && array_keys( $requests[3] ) === [ 'headers' ] ) {
                $requests += $requests[3];
                unset( $requests[3] );
            }
            return $this->runAll( [ $requests ] )[0];
        }
        if ( count( $requests ) === 1 && is_array( reset( $requests ) )
            && !is_string( reset( $requests )[0] ?? null ) ) {
            $requests = reset( $requests );
        }
        return $this->runAll( $requests );
    }

    /** @return Result[] */
    private function runAll( array $requests ): array {
        $requests = array_map( [ $this, 'parse' ], array_values( $requests ) );
        $local = [];
        $remote = [];
        foreach ( $requests as $index => $request ) {
            if ( $this->registry[$request['prefix']] instanceof Servers ) {
                $remote[$index] = $request;
            } else {
                $local[$request['prefix']][$index] = $request;
            }
        }
        $results = $this->runRemote( $remote );
        foreach ( $local as $prefix => $part ) {
            $results += $this->runLocal( (string)$prefix, $part );
        }
        ksort( $results );
        return $results;
    }

    /**
     * Reads a path. A redirect to another path of the store, such as from a revision to its newest render, is
     * followed, up to five times.
     *
     * @param array<string, string> $headers
     * @throws InvalidArgumentException if the path or a header is wrong
     */
    public function get( string $path, array $headers = [] ): Result {
        for ( $redirects = 0; ; $redirects++ ) {
            [ $result ] = $this->run( [ [ 'GET', $path, null, 'headers' => $headers ] ] );
            $target = self::redirectTarget( $path, $result );
            if ( $target === null || $redirects === self::MAX_REDIRECTS ) {
                return $result;
            }
            $path = $target;
        }
    }

    /**
     * Lists the entries or counters of a bucket, or the buckets of the domain for the path `/`. The next part of the
     * list is requested when it is needed.
     *
     * @param string $path The path of the bucket with a slash at its end: `/timeseries/`
     * @param array<string, string|int> $parameters `limit` is the maximum number of entries of one answer. For a bucket
     *     of the type `ordered-blob` also `gt` or `ge`, `lt` or `le`, `prefix`, and `order`
     * @return \Generator<int, array> The members of each entry, such as `key`
     * @throws InvalidArgumentException if the path or a parameter is wrong
     * @throws \UnexpectedValueException if an answer is no part of a list, such as a problem
     */
    public function entries( string $path, array $parameters = [] ): \Generator {
        if ( substr( $path, -1 ) !== '/' || strpos( $path, '?' ) !== false ) {
            throw new InvalidArgumentException( "the path of a list ends with a slash, such as '/timeseries/';"
                . ' parameters are an argument of their own' );
        }
        // In the query of a list, a plus sign is no space.
        $query = strtr( self::encodeForm( $parameters ), [ '+' => '%20' ] );
        for ( $query = $query === '' ? '' : "?$query"; $query !== null; $query = $document['next'] ?? null ) {
            $result = $this->get( $path . $query );
            if ( !$result->ok() ) {
                throw new \UnexpectedValueException( "the list $path cannot be read: status $result->status: "
                    . ( $result->error ?? $result->problem()['detail'] ?? 'no detail' ) );
            }
            $document = $result->json();
            $entries = $document['entries'] ?? $document['buckets'] ?? null;
            if ( !is_array( $entries ) || !preg_match( '/^(\?.*)?$/D', (string)( $document['next'] ?? '' ) ) ) {
                throw new \UnexpectedValueException( "the answer is no list: $path" );
            }
            foreach ( $entries as $entry ) {
                yield $entry;
            }
        }
    }

    private static function redirectTarget( string $path, Result $result ): ?string {
        $location = $result->headers['location'] ?? '';
        if ( !in_array( $result->status, [ 301, 302, 303, 307, 308 ], true )
            || !preg_match( '/^[\x21-\x7e]+$/D', $location ) || strpos( $location, '#' ) !== false ) {
            return null;
        }
        if ( $location[0] === '?' ) {
            return explode( '?', $path, 2 )[0] . $location;
        }
        // A proxy may have put a prefix before the path.
        return preg_match( '#^(?:/[^/?]+)*?/v1(/' . self::DOMAIN . '/.*)$#D', $location, $match )
            ? '/' . $match[1] : null;
    }

    private static function checkOptions( array $options ): array {
        foreach ( array_diff_key( $options, self::OPTIONS ) as $name => $_ ) {
            throw new InvalidArgumentException( "there is no option '$name'; the options are "
                . implode( ', ', array_keys( self::OPTIONS ) ) );
        }
        $options += self::OPTIONS;
        if ( !is_string( $options['domain'] ) || !preg_match( '/^' . self::DOMAIN . '$/D', $options['domain'] )
            || in_array( $options['domain'], [ 'batch', 'tokens', 'changes', 'admin' ], true ) ) {
            throw new InvalidArgumentException( "the option 'domain' names the wiki, such as 'enwiki'" );
        }
        foreach ( [ 'connect_timeout', 'timeout', 'probe_after' ] as $name ) {
            if ( !is_int( $options[$name] ) && !is_float( $options[$name] ) || !( $options[$name] >= 0.001 )
                || $options[$name] > 86400 ) {
                throw new InvalidArgumentException( "the option '$name' is a number of seconds, 0.001 to 86400" );
            }
        }
        foreach ( [ 'tries', 'max_answer', 'concurrency' ] as $name ) {
            if ( !is_int( $options[$name] ) || $options[$name] < 1 ) {
                throw new InvalidArgumentException( "the option '$name' is a whole number, 1 or more" );
            }
        }
        $file = $options['ca_file'];
        if ( $file !== null && ( !is_string( $file ) || !is_file( $file ) || !is_readable( $file ) ) ) {
            throw new InvalidArgumentException( "the option 'ca_file' names a readable PEM file with certificates" );
        }
        return $options;
    }

    private static function makeTransport( array $options ): Transport {
        $wanted = $options['transport'] ?? ( extension_loaded( 'curl' ) ? 'curl' : 'streams' );
        if ( $wanted instanceof Transport ) {
            return $wanted;
        }
        if ( $wanted === 'curl' && !extension_loaded( 'curl' ) ) {
            throw new InvalidArgumentException( "the transport 'curl' needs the extension curl: install it, or leave"
                . " the option 'transport' out" );
        }
        if ( $wanted !== 'curl' && $wanted !== 'streams' ) {
            throw new InvalidArgumentException( "the option 'transport' is 'curl', 'streams' or an object that"
                . ' implements Rashomon\Transport' );
        }
        return $wanted === 'curl' ? new CurlTransport( $options ) : new StreamTransport( $options );
    }

    /** @param mixed $request */
    private function parse( $request ): array {
        $form = "[ method, path, body, 'headers' => [ name => value ] ]";
        if ( !is_array( $request ) || !is_string( $request[0] ?? null ) || !is_string( $request[1] ?? null )
            || array_diff( array_keys( $request ), [ 0, 1, 2, 'headers' ] ) ) {
            throw new InvalidArgumentException( "a request is $form; body and headers may be left out" );
        }
        [ $method, $path ] = $request;
        $body = $request[2] ?? null;
        if ( !in_array( $method, self::METHODS, true ) ) {
            throw new InvalidArgumentException( "'$method' is no method; write one of "
                . implode( ', ', self::METHODS ) );
        }
        $domain = $this->options['domain'];
        if ( !preg_match( '#^/[\x21\x22\x24-\x7e]*$#D', $path ) ) {
            throw new InvalidArgumentException( "the path '" . addcslashes( $path, "\0..\37\177" ) . "' is wrong: it"
                . " begins with '/', and spaces, '#' and letters beyond ASCII are encoded;"
                . " Rashomon\\path( 'page', \$title ) does it" );
        }
        $inside = $path;
        if ( substr( $path, 0, 2 ) === '//' ) {
            if ( !preg_match( '#^//(' . self::DOMAIN . ')((?:[/?].*)?)$#D', $path, $match ) ) {
                throw new InvalidArgumentException( "the path '$path' names no domain: write"
                    . " '//enwiki/page/Main_Page'" );
            }
            [ , $domain, $inside ] = $match;
        }
        if ( $body !== null && !is_string( $body ) && !is_array( $body ) ) {
            throw new InvalidArgumentException( 'a body is a string, or an array of form fields: encode other values' );
        }
        if ( $body !== null && in_array( $method, [ 'GET', 'HEAD', 'OPTIONS' ], true ) ) {
            throw new InvalidArgumentException( "a $method has no body: leave it out, or use null" );
        }
        $headers = self::checkHeaders( $request['headers'] ?? [] );
        $type = is_array( $body ) ? [ 'content-type' => 'application/x-www-form-urlencoded' ] : [];
        return [
            'method' => $method,
            'path' => "/v1/$domain$inside",
            'headers' => $headers + $type,
            'body' => is_array( $body ) ? self::encodeForm( $body ) : $body,
            'repeat' => self::mayRepeat( $method, $path, $headers ),
            'prefix' => $this->prefixOf( "/$domain$inside" ),
            'local' => [ $method, "//$domain$inside", $body, 'headers' => $headers ],
        ];
    }

    /** @param mixed $headers */
    private static function checkHeaders( $headers ): array {
        if ( !is_array( $headers ) ) {
            throw new InvalidArgumentException( "'headers' is an array, such as [ 'If-Match' => \$tag ]" );
        }
        $checked = [];
        foreach ( $headers as $name => $value ) {
            if ( is_int( $name ) || !preg_match( '/^[A-Za-z0-9!#$%&\'*+.^_`|~-]+$/D', $name ) ) {
                throw new InvalidArgumentException( "'" . addcslashes( (string)$name, "\0..\37" ) . "' is no name of a"
                    . " header: write [ 'If-Match' => \$tag ]" );
            }
            $name = strtolower( $name );
            if ( in_array( $name, self::OWN_HEADERS, true ) ) {
                throw new InvalidArgumentException( "the client or its connection manages the header '$name': leave it"
                    . " out; a token belongs in the option 'token' or 'token_file'" );
            }
            if ( isset( $checked[$name] ) ) {
                throw new InvalidArgumentException( "the header '$name' is there twice: join the values with a comma" );
            }
            $isText = is_string( $value ) || is_int( $value );
            if ( !$isText || preg_match( '/[\x00-\x08\x0a-\x1f\x7f]/', (string)$value ) ) {
                throw new InvalidArgumentException( "the value of the header '$name' is a string in one line: remove"
                    . ' line breaks and control characters' );
            }
            $checked[$name] = trim( (string)$value );
        }
        return $checked;
    }

    private static function encodeForm( array $fields ): string {
        $pairs = [];
        foreach ( $fields as $name => $value ) {
            if ( !is_string( $value ) && !is_int( $value ) && !is_bool( $value ) ) {
                throw new InvalidArgumentException( "the form field or list parameter '$name' is a string, a whole"
                    . ' number, true or false: leave an absent field out, and encode other values first' );
            }
            $text = (string)( is_bool( $value ) ? (int)$value : $value );
            $pairs[] = urlencode( (string)$name ) . '=' . urlencode( $text );
        }
        return implode( '&', $pairs );
    }

    /** Whether a request may be sent to another server after bytes of it were sent. */
    private static function mayRepeat( string $method, string $path, array $headers ): bool {
        if ( $method === 'GET' || $method === 'HEAD' || $method === 'OPTIONS' ) {
            return true;
        }
        // The server that failed may carry out a PUT or DELETE later, and undo a newer write.
        return $method === 'POST'
            && ( substr( (string)strstr( $path, '?' ), 1 ) === 'rev/' || isset( $headers['idempotency-key'] ) );
    }

    /** Returns a prefix with its domain: `/enwiki/math-png` for `/math-png` and for `//enwiki/math-png`. */
    private function withDomain( string $prefix ): string {
        return strncmp( $prefix, '//', 2 ) === 0 ? substr( $prefix, 1 ) : '/' . $this->options['domain'] . $prefix;
    }

    /** Returns the longest prefix of the registry that consists of whole segments of the path. */
    private function prefixOf( string $path ): string {
        $path = rawurldecode( explode( '?', $path, 2 )[0] ) . '/';
        foreach ( $this->registry as $prefix => $_ ) {
            if ( strncmp( $path, "$prefix/", strlen( "$prefix/" ) ) === 0 ) {
                return (string)$prefix;
            }
        }
        return '/';
    }

    /** @return array<int, Result> */
    private function runRemote( array $requests ): array {
        $results = $backends = [];
        $tried = array_fill_keys( array_keys( $requests ), [] );
        foreach ( $requests as $index => $request ) {
            $token = $this->registry[$request['prefix']]->token();
            $requests[$index]['headers'] += $token === null ? [] : [ 'authorization' => "Bearer $token" ];
            unset( $requests[$index]['prefix'], $requests[$index]['local'] );
            $backends[$index] = $this->registry[$request['prefix']];
        }
        $server = static function ( int $index ) use ( $backends, &$tried ): string {
            $number = $backends[$index]->choose( $tried[$index], hrtime( true ) / 1e9 );
            $tried[$index][] = $number;
            return $backends[$index]->url( $number );
        };
        $finished = function ( int $index, Result $result, int $outcome )
            use ( $requests, $backends, &$results, &$tried ): bool {
            $results[$index] = $result;
            $backends[$index]->report( end( $tried[$index] ), $outcome === Transport::DONE, hrtime( true ) / 1e9 );
            $mayRepeat = $outcome === Transport::UNSENT || $outcome === Transport::SENT && $requests[$index]['repeat'];
            return $mayRepeat && count( $tried[$index] ) < min( $this->options['tries'], $backends[$index]->count() );
        };
        if ( $requests ) {
            $this->transport->send( $requests, $server, $finished );
        }
        return $results;
    }

    /** @return array<int, Result> */
    private function runLocal( string $prefix, array $requests ): array {
        try {
            $answers = $this->registry[$prefix]->run( array_column( $requests, 'local' ) );
            if ( !is_array( $answers ) || count( $answers ) !== count( $requests ) ) {
                throw new \UnexpectedValueException( 'run() did not return one result for each request' );
            }
            $answers = array_map( static function ( $answer ): Result {
                return $answer instanceof Result ? $answer
                    : new Result( $answer['status'], $answer['headers'] ?? [], $answer['body'] ?? '' );
            }, array_values( $answers ) );
        } catch ( \Throwable $error ) {
            $named = $prefix === '/' ? $prefix : "/$prefix";
            $reason = "the backend of '$named' failed: " . get_class( $error ) . ': ' . $error->getMessage();
            $answers = array_fill( 0, count( $requests ), new Result( 0, [], '', $reason ) );
        }
        return array_combine( array_keys( $requests ), $answers );
    }
}

/**
 * The HTTP servers of a backend, used in turn. A server that fails is left out for a time. Then one request
 * probes it.
 *
 * @internal
 */
final class Servers {
    private array $urls = [];
    private ?string $token;
    private ?string $tokenFile;
    private float $probeAfter;
    /** The index of the server whose turn is next. */
    private int $next;
    /** @var array<int, float> The time at which a server is probed, for each server that is left out. */
    private array $probeAt = [];

    public function __construct( string $prefix, array $backend, array $options ) {
        foreach ( array_diff_key( $backend, [ 'servers' => 0, 'token' => 0, 'token_file' => 0 ] ) as $name => $_ ) {
            throw new InvalidArgumentException( "the backend of '$prefix' has an unknown member '$name': it has"
                . " 'servers', and may have 'token' or 'token_file'" );
        }
        $servers = $backend['servers'] ?? null;
        if ( !is_array( $servers ) || !$servers ) {
            throw new InvalidArgumentException( "the backend of '$prefix' has no servers: write"
                . " [ 'servers' => [ 'http://host:port' ] ]" );
        }
        $form = '#^https?://([a-z0-9.-]+|\[[0-9a-f:.]+\])(:\d{1,5})?/?$#Di';
        foreach ( $servers as $server ) {
            if ( !is_string( $server ) || !preg_match( $form, $server ) ) {
                throw new InvalidArgumentException( "a server of '$prefix' is wrong: write 'http://host:port' or"
                    . " 'https://host:port', without a path" );
            }
            $this->urls[] = rtrim( $server, '/' );
        }
        $own = isset( $backend['token'] ) || isset( $backend['token_file'] );
        [ 'token' => $this->token, 'token_file' => $this->tokenFile ] = self::checkToken( $own ? $backend : $options );
        $this->probeAfter = (float)$options['probe_after'];
        // Programs that live for one page view would otherwise all begin with the same server.
        $this->next = random_int( 0, count( $this->urls ) - 1 );
    }

    private static function checkToken( array $from ): array {
        [ 'token' => $token, 'token_file' => $file ] = $from + [ 'token' => null, 'token_file' => null ];
        if ( $token !== null && $file !== null ) {
            throw new InvalidArgumentException( "give 'token' or 'token_file', not both" );
        }
        if ( $file !== null ) {
            $token = is_string( $file ) ? self::readToken( $file ) : null;
            if ( $token === null ) {
                throw new InvalidArgumentException( "'token_file' names a readable file that has a token, and nothing"
                    . ' else' );
            }
        } elseif ( $token !== null && ( !is_string( $token ) || !self::isToken( $token ) ) ) {
            throw new InvalidArgumentException( "'token' is a bearer token, as `rashomon token new` prints one: without"
                . " 'Bearer', spaces and line breaks" );
        }
        return [ 'token' => $token, 'token_file' => $file ];
    }

    private static function isToken( string $token ): bool {
        return (bool)preg_match( '#^[A-Za-z0-9._~+/-]+=*$#D', $token );
    }

    private static function readToken( string $file ): ?string {
        $token = is_file( $file ) && is_readable( $file ) ? trim( (string)file_get_contents( $file ) ) : '';
        return self::isToken( $token ) ? $token : null;
    }

    /** Returns the token. The file is read again, so that a new token is used at once. */
    public function token(): ?string {
        if ( $this->tokenFile !== null ) {
            // A file that is being replaced may be empty. Then the previous token stays in use.
            $this->token = self::readToken( $this->tokenFile ) ?? $this->token;
        }
        return $this->token;
    }

    public function url( int $number ): string {
        return $this->urls[$number];
    }

    public function count(): int {
        return count( $this->urls );
    }

    /**
     * Chooses a server that the request has not tried. If all untried servers are left out, chooses the server that
     * is to be probed first.
     *
     * @param int[] $tried
     */
    public function choose( array $tried, float $now ): int {
        $first = null;
        foreach ( $this->urls as $offset => $_ ) {
            $number = ( $this->next + $offset ) % count( $this->urls );
            if ( in_array( $number, $tried, true ) ) {
                continue;
            }
            $probeAt = $this->probeAt[$number] ?? null;
            if ( $probeAt === null || $probeAt <= $now ) {
                if ( $probeAt !== null ) {
                    // One request probes. Others leave the server out until it has answered.
                    $this->probeAt[$number] = $now + $this->probeAfter;
                }
                $this->next = $number + 1;
                return $number;
            }
            if ( $first === null || $probeAt < $this->probeAt[$first] ) {
                $first = $number;
            }
        }
        return $first;
    }

    public function report( int $number, bool $answered, float $now ): void {
        if ( $answered ) {
            unset( $this->probeAt[$number] );
        } else {
            $this->probeAt[$number] = $now + $this->probeAfter;
        }
    }
}

/**
 * Sends requests concurrently with the extension curl. Connections are kept for later requests.
 *
 * @internal
 */
final class CurlTransport implements Transport {
    private array $options;
    /** @var resource|\CurlMultiHandle */
    private $multi;

    public function __construct( array $options ) {
        $this->options = $options;
        $this->multi = curl_multi_init();
    }

    public function send( array $requests, callable $server, callable $finished ): void {
        $waiting = array_keys( $requests );
        $running = [];
        try {
            while ( $waiting || $running ) {
                while ( $waiting && count( $running ) < $this->options['concurrency'] ) {
                    $index = array_shift( $waiting );
                    $running[$index] = $this->start( $index, $server( $index ), $requests[$index] );
                }
                curl_multi_exec( $this->multi, $active );
                $ended = 0;
                while ( $info = curl_multi_info_read( $this->multi ) ) {
                    $ended++;
                    $index = (int)curl_getinfo( $info['handle'], CURLINFO_PRIVATE );
                    [ $handle, $answer ] = $running[$index];
                    unset( $running[$index] );
                    curl_multi_remove_handle( $this->multi, $handle );
                    [ $result, $outcome ] = self::result( $handle, $answer, $info['result'] );
                    if ( $finished( $index, $result, $outcome ) ) {
                        array_unshift( $waiting, $index );
                    }
                }
                if ( !$ended && $running && curl_multi_select( $this->multi, 0.2 ) === -1 ) {
                    usleep( 1000 );
                }
            }
        } finally {
            foreach ( $running as [ $handle ] ) {
                curl_multi_remove_handle( $this->multi, $handle );
            }
        }
    }

    private function start( int $index, string $server, array $request ): array {
        $answer = new Answer( $this->options['max_answer'] );
        $headers = [ 'Expect:', 'User-Agent: rashomon-php' ];
        foreach ( $request['headers'] as $name => $value ) {
            // With a semicolon, curl sends a header whose value is empty. With a colon, it would remove the header.
            $headers[] = $value === '' ? "$name;" : "$name: $value";
        }
        if ( !isset( $request['headers']['content-type'] ) ) {
            $headers[] = 'Content-Type:';
        }
        $options = [
            CURLOPT_URL => $server . $request['path'],
            CURLOPT_PATH_AS_IS => true,
            CURLOPT_CUSTOMREQUEST => $request['method'],
            CURLOPT_HTTPHEADER => $headers,
            CURLOPT_HTTP_VERSION => CURL_HTTP_VERSION_1_1,
            CURLOPT_NOBODY => $request['method'] === 'HEAD',
            CURLOPT_CONNECTTIMEOUT_MS => (int)ceil( $this->options['connect_timeout'] * 1000 ),
            CURLOPT_TIMEOUT_MS => (int)ceil( $this->options['timeout'] * 1000 ),
            CURLOPT_PROTOCOLS => CURLPROTO_HTTP | CURLPROTO_HTTPS,
            CURLOPT_SSLVERSION => CURL_SSLVERSION_TLSv1_2,
            CURLOPT_SSL_VERIFYPEER => true,
            CURLOPT_SSL_VERIFYHOST => 2,
            CURLOPT_PROXY => '',
            CURLOPT_NOSIGNAL => true,
            // If the server has closed a kept connection, curl would send a request again by itself.
            CURLOPT_FRESH_CONNECT => !$request['repeat'],
            CURLOPT_PRIVATE => (string)$index,
            CURLOPT_HEADERFUNCTION => static fn ( $_, string $line ) => $answer->line( $line ),
            CURLOPT_WRITEFUNCTION => static fn ( $_, string $bytes ) => $answer->append( $bytes ),
        ];
        if ( $request['body'] !== null || $request['method'] === 'POST' || $request['method'] === 'PUT' ) {
            $options[CURLOPT_POSTFIELDS] = (string)$request['body'];
        }
        if ( $this->options['ca_file'] !== null ) {
            $options[CURLOPT_CAINFO] = $this->options['ca_file'];
        }
        $handle = curl_init();
        if ( !curl_setopt_array( $handle, $options ) ) {
            throw new \LogicException( "the extension curl is too old: set the option 'transport' to 'streams'" );
        }
        if ( $this->options['ca_file'] !== null ) {
            // In addition to the file, curl trusts the certificates in a folder of the system. CURLOPT_CAPATH names
            // another folder, which has no certificates.
            curl_setopt( $handle, CURLOPT_CAPATH, __DIR__ );
        }
        curl_multi_add_handle( $this->multi, $handle );
        return [ $handle, $answer ];
    }

    /** @param resource|\CurlHandle $handle */
    private static function result( $handle, Answer $answer, int $code ): array {
        if ( $answer->excess !== null ) {
            return [ new Result( 0, [], '', $answer->excess ), self::DONE ];
        }
        if ( $code === CURLE_OK && $answer->headIsComplete ) {
            return [ new Result( $answer->status, $answer->headers, $answer->body ), self::DONE ];
        }
        $sent = curl_getinfo( $handle, CURLINFO_REQUEST_SIZE ) > 0
            || curl_getinfo( $handle, CURLINFO_PRETRANSFER_TIME ) > 0;
        $reason = $code === CURLE_OK ? 'the answer was cut off' : ( curl_error( $handle ) ?: curl_strerror( $code ) );
        $url = curl_getinfo( $handle, CURLINFO_EFFECTIVE_URL );
        return [ new Result( 0, [], '', "no answer from $url: $reason" ), $sent ? self::SENT : self::UNSENT ];
    }
}

/**
 * Sends requests one after the other with PHP's streams.
 *
 * @internal
 */
final class StreamTransport implements Transport {
    private const READ_SIZE = 65536;

    private array $options;
    /** @var resource */
    private $stream;
    private float $deadline = 0.0;
    private string $buffer = '';
    private string $warning = '';

    public function __construct( array $options ) {
        $this->options = $options;
    }

    public function send( array $requests, callable $server, callable $finished ): void {
        foreach ( $requests as $index => $request ) {
            do {
                [ $result, $outcome ] = $this->attempt( $server( $index ), $request );
            } while ( $finished( $index, $result, $outcome ) );
        }
    }

    private function attempt( string $server, array $request ): array {
        $outcome = self::UNSENT;
        $answer = new Answer( $this->options['max_answer'] );
        $this->stream = null;
        $this->buffer = '';
        $this->deadline = hrtime( true ) / 1e9 + $this->options['timeout'];
        // Warnings of the functions for streams become errors of the result, whatever handler the program has.
        set_error_handler( function ( int $_, string $message ): bool {
            $this->warning .= ( $this->warning === '' ? '' : '; ' ) . $message;
            return true;
        } );
        $this->warning = '';
        try {
            $this->connect( $server );
            $outcome = self::SENT;
            $this->write( $server, $request );
            $this->read( $request['method'], $answer );
            return [ new Result( $answer->status, $answer->headers, $answer->body ), self::DONE ];
        } catch ( \RuntimeException $error ) {
            $reason = $answer->excess ?? "no answer from $server{$request['path']}: {$error->getMessage()}";
            return [ new Result( 0, [], '', $reason ), $answer->excess === null ? $outcome : self::DONE ];
        } finally {
            restore_error_handler();
            if ( $this->stream ) {
                fclose( $this->stream );
            }
        }
    }

    private function connect( string $server ): void {
        [ 'scheme' => $scheme, 'host' => $host ] = $parts = parse_url( $server );
        $tls = strtolower( $scheme ) === 'https';
        $versions = STREAM_CRYPTO_METHOD_TLSv1_2_CLIENT
            | ( defined( 'STREAM_CRYPTO_METHOD_TLSv1_3_CLIENT' ) ? STREAM_CRYPTO_METHOD_TLSv1_3_CLIENT : 0 );
        $ssl = [ 'verify_peer' => true, 'verify_peer_name' => true, 'allow_self_signed' => false,
            'peer_name' => trim( $host, '[]' ), 'crypto_method' => $versions ];
        if ( $this->options['ca_file'] !== null ) {
            $ssl['cafile'] = $this->options['ca_file'];
        }
        $address = ( $tls ? 'ssl' : 'tcp' ) . "://$host:" . ( $parts['port'] ?? ( $tls ? 443 : 80 ) );
        $limit = (float)min( $this->options['connect_timeout'], $this->options['timeout'] );
        $this->stream = stream_socket_client( $address, $code, $message, $limit, STREAM_CLIENT_CONNECT,
            stream_context_create( [ 'ssl' => $ssl ] ) );
        if ( !$this->stream ) {
            throw new \RuntimeException( 'the connection failed: ' . ( $message ?: $this->warning ?: "error $code" )
                . ( $tls && $this->warning !== '' ? " ($this->warning)" : '' ) );
        }
    }

    private function write( string $server, array $request ): void {
        $lines = [ "{$request['method']} {$request['path']} HTTP/1.1", 'Host: ' . explode( '://', $server )[1],
            'Connection: close', 'User-Agent: rashomon-php' ];
        foreach ( $request['headers'] as $name => $value ) {
            $lines[] = "$name: $value";
        }
        if ( $request['body'] !== null || $request['method'] === 'POST' || $request['method'] === 'PUT' ) {
            $lines[] = 'Content-Length: ' . strlen( (string)$request['body'] );
        }
        $bytes = implode( "\r\n", $lines ) . "\r\n\r\n" . $request['body'];
        for ( $at = 0; $at < strlen( $bytes ); $at += $written ) {
            $this->setTimeLimit();
            $written = fwrite( $this->stream, substr( $bytes, $at, self::READ_SIZE ) );
            if ( stream_get_meta_data( $this->stream )['timed_out'] ) {
                throw new \RuntimeException( "the request took longer than the option 'timeout' allows" );
            }
            // A server may answer, such as with 413, before it has read the whole request, and then read no more.
            stream_set_blocking( $this->stream, false );
            $this->buffer = (string)fread( $this->stream, self::READ_SIZE );
            stream_set_blocking( $this->stream, true );
            if ( !$written || $this->buffer !== '' ) {
                return;
            }
        }
    }

    private function read( string $method, Answer $answer ): void {
        while ( !$answer->headIsComplete ) {
            if ( !$answer->line( $this->readLine() ) ) {
                throw new \RuntimeException( 'the answer is too large' );
            }
            if ( $answer->status === 0 ) {
                throw new \RuntimeException( 'the answer is not HTTP' );
            }
        }
        if ( $method === 'HEAD' || $answer->status === 204 || $answer->status === 304 ) {
            return;
        }
        if ( preg_match( '/(^|,)\s*chunked\s*$/i', $answer->headers['transfer-encoding'] ?? '' ) ) {
            while ( $size = $this->readChunkSize() ) {
                $this->readBody( $size, $answer );
                if ( rtrim( $this->readLine(), "\r\n" ) !== '' ) {
                    throw new \RuntimeException( 'a chunk of the answer has no end' );
                }
            }
            do {
                $trailer = $this->readLine();
            } while ( rtrim( $trailer, "\r\n" ) !== '' );
        } elseif ( isset( $answer->headers['content-length'] ) ) {
            if ( !preg_match( '/^\d{1,18}$/D', $answer->headers['content-length'] ) ) {
                throw new \RuntimeException( 'the length of the answer is no number' );
            }
            $this->readBody( (int)$answer->headers['content-length'], $answer );
        } else {
            $this->readBody( null, $answer );
        }
    }

    private function readChunkSize(): int {
        if ( !preg_match( '/^([0-9a-f]{1,15})[ \t]*(;.*)?\r?\n$/Di', $this->readLine(), $match ) ) {
            throw new \RuntimeException( 'the size of a chunk is no number' );
        }
        return (int)hexdec( $match[1] );
    }

    private function readLine(): string {
        while ( ( $end = strpos( $this->buffer, "\n" ) ) === false ) {
            if ( strlen( $this->buffer ) > Answer::MAX_HEAD || !$this->fill() ) {
                throw new \RuntimeException( 'the answer was cut off, or has a line of more than 64 KiB' );
            }
        }
        $line = substr( $this->buffer, 0, $end + 1 );
        $this->buffer = substr( $this->buffer, $end + 1 );
        return $line;
    }

    /** Reads a number of bytes, or all bytes until the connection ends if the number is null. */
    private function readBody( ?int $length, Answer $answer ): void {
        while ( $length !== 0 ) {
            if ( $this->buffer === '' && !$this->fill() ) {
                if ( $length === null ) {
                    return;
                }
                throw new \RuntimeException( 'the answer was cut off' );
            }
            $part = $length === null ? $this->buffer : substr( $this->buffer, 0, $length );
            $this->buffer = substr( $this->buffer, strlen( $part ) );
            $length = $length === null ? null : $length - strlen( $part );
            if ( $answer->append( $part ) !== strlen( $part ) ) {
                throw new \RuntimeException( 'the answer is too large' );
            }
        }
    }

    /** Adds received bytes to the buffer. Returns false at the end of the connection. */
    private function fill(): bool {
        $this->setTimeLimit();
        $bytes = (string)fread( $this->stream, self::READ_SIZE );
        if ( $bytes === '' && stream_get_meta_data( $this->stream )['timed_out'] ) {
            throw new \RuntimeException( "the request took longer than the option 'timeout' allows" );
        }
        $this->buffer .= $bytes;
        return $bytes !== '' || !feof( $this->stream );
    }

    private function setTimeLimit(): void {
        $left = $this->deadline - hrtime( true ) / 1e9;
        if ( $left <= 0 ) {
            throw new \RuntimeException( "the request took longer than the option 'timeout' allows" );
        }
        stream_set_timeout( $this->stream, (int)$left, (int)( fmod( $left, 1 ) * 1e6 ) + 1 );
    }
}

/**
 * Collects an answer up to the maximum size.
 *
 * @internal
 */
final class Answer {
    public const MAX_HEAD = 65536;

    public int $status = 0;
    public array $headers = [];
    public bool $headIsComplete = false;
    public string $body = '';
    /** The error, if the answer is too large, or switches to another protocol. */
    public ?string $excess = null;
    private int $maxBody;
    private int $head = 0;

    public function __construct( int $maxBody ) {
        $this->maxBody = $maxBody;
    }

    /** Takes a line of the head. Returns its length, or 0 if the answer cannot be used. */
    public function line( string $line ): int {
        $this->head += strlen( $line );
        if ( $this->head > self::MAX_HEAD ) {
            $this->excess = 'the headers of the answer are larger than 64 KiB';
            return 0;
        }
        if ( preg_match( '#^HTTP/\d(?:\.\d)? (\d{3})#', $line, $match ) ) {
            // A final answer may follow one or more answers of the statuses 100 to 199.
            $this->status = (int)$match[1];
            $this->headers = [];
            $this->headIsComplete = false;
        } elseif ( trim( $line ) === '' ) {
            $this->headIsComplete = $this->status >= 200;
            if ( $this->status === 101 ) {
                // This answer has no body and no end.
                $this->excess = 'the server switched to another protocol (101), which the request did not ask for';
                return 0;
            }
        } elseif ( strpos( $line, ':' ) !== false ) {
            [ $name, $value ] = explode( ':', $line, 2 );
            $name = strtolower( trim( $name ) );
            $before = isset( $this->headers[$name] ) ? "{$this->headers[$name]}, " : '';
            $this->headers[$name] = $before . trim( $value );
        }
        return strlen( $line );
    }

    /** Takes bytes of the body. Returns their number, or 0 if the body is too large. */
    public function append( string $bytes ): int {
        if ( strlen( $this->body ) + strlen( $bytes ) > $this->maxBody ) {
            $this->excess = "the body of the answer is larger than $this->maxBody bytes: raise the option 'max_answer'";
            return 0;
        }
        $this->body .= $bytes;
        return strlen( $bytes );
    }
}
