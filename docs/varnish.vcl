# Varnish in front of Rashomon: see varnish.md. Needs Varnish 7.1 or later and varnish-modules (xkey, var).
#
# A read that starts after a purge was acknowledged never returns an answer from before the purged write. See "Answers
# that were overtaken by a purge" below.

vcl 4.1;

import blob;
import directors;
import std;
import var;
import xkey;

# --- Change this part ---------------------------------------------------------------------------------------------

# /healthz answers while the process runs. /readyz also fails if the disk accepts no writes: as the probe, it would stop
# reads, too.
probe health {
    .url = "/healthz";
    .interval = 1s;
    .timeout = 2s;
    .window = 3;
    .threshold = 2;
    .initial = 2;
}

# The server for everything but the prefixes below.
backend rashomon {
    .host = "127.0.0.1";
    .port = "7231";
    .probe = health;
    .first_byte_timeout = 300s;
}

# The servers of one bucket, which are asked in turn.
backend formulas_1 {
    .host = "127.0.0.1";
    .port = "7232";
    .probe = health;
    .first_byte_timeout = 300s;
}

backend formulas_2 {
    .host = "127.0.0.1";
    .port = "7233";
    .probe = health;
    .first_byte_timeout = 300s;
}

# The addresses that may purge: those of the servers. They may also read the metrics.
acl operators {
    "127.0.0.1";
    "::1";
}

sub vcl_init {
    new formulas = directors.round_robin();
    formulas.add_backend(formulas_1);
    formulas.add_backend(formulas_2);
}

# The scheme with which clients reach the cache, and the host in the links of answers below /v1/, of which there is one
# copy for all hosts. What clients say about this does not count: a link in a stored answer is for everybody.
sub choose_links {
    set req.http.X-Forwarded-Proto = "http";
    unset req.http.X-Forwarded-Host;
    unset req.http.X-Forwarded-Prefix;
    if (req.url ~ "^/v1/") {
        set req.http.Host = "store.example.org";
    }
}

# Prefixes with servers of their own, the longest first. All other paths go to the first backend.
sub choose_backend {
    if (req.url ~ "^/v1/enwiki/math-png(/|\?|$)") {
        set req.backend_hint = formulas.backend();
    } elsif (req.http.Host == "en.example.org" && req.url ~ "^/wiki/\?blob/math-png/") {
        set req.backend_hint = formulas.backend();
    } else {
        set req.backend_hint = rashomon;
    }
}

# --- Requests -------------------------------------------------------------------------------------------------------

sub vcl_recv {
    # A missing Host is refused, and a Host is in lower case.
    call vcl_req_host;
    # A host with one of these ports, or with a final dot, is the same host.
    set req.http.Host = regsub(req.http.Host, "\.?(:(80|443))?$", "");
    # The id of a request is in the logs of both programs. The server accepts only ids of this form.
    if (req.restarts == 0 && req.http.X-Request-Id !~ "^[A-Za-z0-9_.:/+=@-]{1,128}$") {
        set req.http.X-Request-Id = server.identity + "-" + req.xid;
    }
    call choose_backend;

    if (req.method == "PURGE" || req.method == "BAN") {
        if (client.ip !~ operators) {
            return (synth(403, "This address may not purge: add it to the ACL of the VCL."));
        }
        if (req.method == "BAN") {
            # Bans all answers whose path and query begin with this path. The ban is a regular expression, in which each
            # special character is written as a set.
            var.global_set("everything", req.xid);
            set req.http.Banned = regsuball(regsuball(req.url, {"[\^"]"}, "."), "([][().*+?|{}$])", "[\1]");
            if (!std.ban("obj.http.Rashomon-Url ~ ^" + req.http.Banned)) {
                return (synth(500, "The ban failed: " + std.ban_error()));
            }
            return (synth(200, "Banned"));
        }
        std.collect(req.http.Surrogate-Key);
        if (req.http.Surrogate-Key) {
            call mark_keys;
            set req.http.Purged = xkey.purge(req.http.Surrogate-Key);
            return (synth(200, "Purged"));
        }
        return (purge);
    }
    # A URL has no fragment. The server refuses such a request, too.
    if (req.url ~ "#") {
        return (synth(400, "The URL of a request has no '#': leave the fragment out."));
    }
    if (req.url ~ "^/metrics(\?|$)" && client.ip !~ operators) {
        return (synth(403, "This address may not read the metrics: add it to the ACL of the VCL."));
    }

    if (req.method != "GET" && req.method != "HEAD") {
        return (pass);
    }
    # Rashomon checks tokens. Rashomon ignores cookies, but a program in front of the cache may use them.
    if (req.http.Authorization || req.http.Cookie) {
        return (pass);
    }
    # Varnish does not evaluate these conditions.
    if (req.http.If-Match || req.http.If-Unmodified-Since) {
        return (pass);
    }
    # All other resources are for operators and for people, and no purge names them.
    if (req.url !~ "^/(v1|wiki)/") {
        return (pass);
    }
    # The server finds a domain by its host, whatever the port. Purges name hosts without other ports.
    if (req.url ~ "^/wiki/" && (!req.http.Host || req.http.Host ~ ":[0-9]*$")) {
        return (pass);
    }

    # Accept selects a spec version by its parameter profile. Without profile it selects nothing, and browsers spell it
    # in many ways.
    std.collect(req.http.Accept);
    if (req.http.Accept !~ "(?i);\s*profile\s*=") {
        unset req.http.Accept;
    }
    # The latest can change within a second, so only the entity tag is exact there. A render has one date.
    if (req.url !~ "\?rev/[0-9a-f]{8}-") {
        unset req.http.If-Modified-Since;
    }
    # One spelling for all clients that accept zstd, in which Rashomon stores bodies. A range counts uncompressed bytes.
    # Varnish sends this header if it runs with http_gzip_support=off; else it asks for uncompressed bodies.
    std.collect(req.http.Accept-Encoding);
    if (!req.http.Range && req.http.Accept-Encoding
        ~ "(?i)(^|,)\s*zstd\s*(;\s*q\s*=\s*(1(\.0*)?|0?\.[0-9]*[1-9][0-9]*)\s*)?(,|$)") {
        set req.http.Accept-Encoding = "zstd";
    } else {
        unset req.http.Accept-Encoding;
    }
    call choose_links;
    # The query is a path with one spelling, and stays as it is.
    return (hash);
}

# The URL names the answer. Only below /wiki/, the host names the domain and is a part of the name. So a request with
# another host makes no copy that purges do not find.
sub vcl_hash {
    hash_data(req.url);
    if (req.url ~ "^/wiki/") {
        hash_data(req.http.Host);
    }
    return (lookup);
}

# --- Answers that were overtaken by a purge -------------------------------------------------------------------------
#
# A purge removes stored answers. It does not see the answer of a fetch under way, which may be older than the purge.
# So each purge leaves a mark: a new number, under one of 256 names for URLs, or one of 16 names for keys. A fetch
# remembers the marks from its beginning. If a mark has changed when the answer arrives, the answer is delivered but not
# stored. A purge can also come between this check and the moment at which the answer is stored. So while a stored
# answer is younger than three seconds, it is delivered only if its marks are still the same. Rashomon purges again
# after two seconds.

sub vcl_purge {
    var.global_set("url " + regsub(blob.encode(HEX, LOWER, req.hash), "^(..).*$", "\1"), req.xid);
    return (synth(200, "Purged"));
}

# Sets the marks of the purged keys. The name of a mark is the last digit of the key.
sub mark_keys {
    if (req.http.Surrogate-Key ~ "(?i)[^0-9a-f\s,]([\s,]|$)") { var.global_set("everything", req.xid); }
    if (req.http.Surrogate-Key ~ "0([\s,]|$)") { var.global_set("key 0", req.xid); }
    if (req.http.Surrogate-Key ~ "1([\s,]|$)") { var.global_set("key 1", req.xid); }
    if (req.http.Surrogate-Key ~ "2([\s,]|$)") { var.global_set("key 2", req.xid); }
    if (req.http.Surrogate-Key ~ "3([\s,]|$)") { var.global_set("key 3", req.xid); }
    if (req.http.Surrogate-Key ~ "4([\s,]|$)") { var.global_set("key 4", req.xid); }
    if (req.http.Surrogate-Key ~ "5([\s,]|$)") { var.global_set("key 5", req.xid); }
    if (req.http.Surrogate-Key ~ "6([\s,]|$)") { var.global_set("key 6", req.xid); }
    if (req.http.Surrogate-Key ~ "7([\s,]|$)") { var.global_set("key 7", req.xid); }
    if (req.http.Surrogate-Key ~ "8([\s,]|$)") { var.global_set("key 8", req.xid); }
    if (req.http.Surrogate-Key ~ "9([\s,]|$)") { var.global_set("key 9", req.xid); }
    if (req.http.Surrogate-Key ~ "(?i)a([\s,]|$)") { var.global_set("key a", req.xid); }
    if (req.http.Surrogate-Key ~ "(?i)b([\s,]|$)") { var.global_set("key b", req.xid); }
    if (req.http.Surrogate-Key ~ "(?i)c([\s,]|$)") { var.global_set("key c", req.xid); }
    if (req.http.Surrogate-Key ~ "(?i)d([\s,]|$)") { var.global_set("key d", req.xid); }
    if (req.http.Surrogate-Key ~ "(?i)e([\s,]|$)") { var.global_set("key e", req.xid); }
    if (req.http.Surrogate-Key ~ "(?i)f([\s,]|$)") { var.global_set("key f", req.xid); }
}

# Reads the marks: that of one name for URLs, that for everything, and those of all names for keys.
sub all_marks {
    var.set("marks", "url=" + var.global_get("url " + var.get("name of the URL"))
        + " all=" + var.global_get("everything")
        + " 0=" + var.global_get("key 0") + " 1=" + var.global_get("key 1")
        + " 2=" + var.global_get("key 2") + " 3=" + var.global_get("key 3")
        + " 4=" + var.global_get("key 4") + " 5=" + var.global_get("key 5")
        + " 6=" + var.global_get("key 6") + " 7=" + var.global_get("key 7")
        + " 8=" + var.global_get("key 8") + " 9=" + var.global_get("key 9")
        + " a=" + var.global_get("key a") + " b=" + var.global_get("key b")
        + " c=" + var.global_get("key c") + " d=" + var.global_get("key d")
        + " e=" + var.global_get("key e") + " f=" + var.global_get("key f"));
}

# Removes the marks of keys that the answer does not have.
sub only_own_marks {
    if (var.get("keys") !~ "0([\s,]|$)") { var.set("marks", regsuball(var.get("marks"), " 0=\d*", "")); }
    if (var.get("keys") !~ "1([\s,]|$)") { var.set("marks", regsuball(var.get("marks"), " 1=\d*", "")); }
    if (var.get("keys") !~ "2([\s,]|$)") { var.set("marks", regsuball(var.get("marks"), " 2=\d*", "")); }
    if (var.get("keys") !~ "3([\s,]|$)") { var.set("marks", regsuball(var.get("marks"), " 3=\d*", "")); }
    if (var.get("keys") !~ "4([\s,]|$)") { var.set("marks", regsuball(var.get("marks"), " 4=\d*", "")); }
    if (var.get("keys") !~ "5([\s,]|$)") { var.set("marks", regsuball(var.get("marks"), " 5=\d*", "")); }
    if (var.get("keys") !~ "6([\s,]|$)") { var.set("marks", regsuball(var.get("marks"), " 6=\d*", "")); }
    if (var.get("keys") !~ "7([\s,]|$)") { var.set("marks", regsuball(var.get("marks"), " 7=\d*", "")); }
    if (var.get("keys") !~ "8([\s,]|$)") { var.set("marks", regsuball(var.get("marks"), " 8=\d*", "")); }
    if (var.get("keys") !~ "9([\s,]|$)") { var.set("marks", regsuball(var.get("marks"), " 9=\d*", "")); }
    if (var.get("keys") !~ "(?i)a([\s,]|$)") { var.set("marks", regsuball(var.get("marks"), " a=\d*", "")); }
    if (var.get("keys") !~ "(?i)b([\s,]|$)") { var.set("marks", regsuball(var.get("marks"), " b=\d*", "")); }
    if (var.get("keys") !~ "(?i)c([\s,]|$)") { var.set("marks", regsuball(var.get("marks"), " c=\d*", "")); }
    if (var.get("keys") !~ "(?i)d([\s,]|$)") { var.set("marks", regsuball(var.get("marks"), " d=\d*", "")); }
    if (var.get("keys") !~ "(?i)e([\s,]|$)") { var.set("marks", regsuball(var.get("marks"), " e=\d*", "")); }
    if (var.get("keys") !~ "(?i)f([\s,]|$)") { var.set("marks", regsuball(var.get("marks"), " f=\d*", "")); }
}

sub vcl_backend_fetch {
    var.set("name of the URL", regsub(blob.encode(HEX, LOWER, bereq.hash), "^(..).*$", "\1"));
    call all_marks;
    var.set("marks at the begin", var.get("marks"));
}

sub vcl_hit {
    if (obj.age < 3s) {
        var.set("name of the URL", regsub(blob.encode(HEX, LOWER, req.hash), "^(..).*$", "\1"));
        var.set("keys", obj.http.xkey);
        call all_marks;
        call only_own_marks;
        if (obj.http.Rashomon-Marks != var.get("marks")) {
            return (pass);
        }
    }
}

# --- Answers --------------------------------------------------------------------------------------------------------

sub vcl_backend_response {
    # An answer that has expired is not used again: neither while a new one is fetched, nor if the server is down.
    set beresp.grace = 0s;
    set beresp.keep = 0s;
    if (bereq.uncacheable) {
        return (deliver);
    }
    # Only answers that the server allows to store are stored, and no failures.
    if (!beresp.http.Cache-Control || beresp.status >= 400) {
        set beresp.ttl = 10s;
        set beresp.uncacheable = true;
        return (deliver);
    }
    # Large bodies are not stored, and their ranges come from the server. Bodies of unknown length are large.
    if (beresp.status == 200 && std.integer(beresp.http.Content-Length, 16777217) > 16777216) {
        return (pass(10m));
    }
    if (!beresp.http.xkey) {
        set beresp.http.xkey = beresp.http.Surrogate-Key;
    }
    set beresp.http.Rashomon-Url = bereq.url;
    std.collect(beresp.http.xkey);
    var.set("keys", beresp.http.xkey);
    call all_marks;
    call only_own_marks;
    set beresp.http.Rashomon-Marks = var.get("marks");
    var.set("marks", var.get("marks at the begin"));
    call only_own_marks;
    if (beresp.http.Rashomon-Marks != var.get("marks")) {
        # A purge has overtaken the answer. Each request that waits for it fetches an answer of its own.
        set beresp.ttl = 1s;
        set beresp.uncacheable = true;
        return (deliver);
    }
    # The built-in VCL follows, and does not store answers that are private or no-store.
}

sub vcl_deliver {
    if (obj.uncacheable) {
        set resp.http.X-Cache = "pass";
    } elsif (obj.hits > 0) {
        set resp.http.X-Cache = "hit";
        # The stored id is that of another request.
        set resp.http.X-Request-Id = req.http.X-Request-Id;
    } else {
        set resp.http.X-Cache = "miss";
    }
    # A stored answer is as new as an answer of the server. Without Age, its max-age begins when it is delivered.
    unset resp.http.Age;
    unset resp.http.xkey;
    unset resp.http.Surrogate-Key;
    unset resp.http.Rashomon-Marks;
    unset resp.http.Rashomon-Url;
}

# --- Answers of Varnish itself --------------------------------------------------------------------------------------

sub vcl_synth {
    set resp.http.Cache-Control = "no-store";
    set resp.http.X-Request-Id = req.http.X-Request-Id;
    if (resp.status < 400) {
        set resp.http.Content-Type = "application/json";
        set resp.body = {"{"message":""} + resp.reason + {"" }"};
        return (deliver);
    }
    set resp.http.Content-Type = "application/problem+json";
    if (resp.status == 503) {
        set resp.http.Retry-After = "1";
    }
    set resp.body = {"{"type":"about:blank","title":"The cache refused the request","status":"} + resp.status
        + {","detail":""} + regsuball(resp.reason, {"[\\"]"}, "'") + {"" }"};
    return (deliver);
}

sub vcl_backend_error {
    # The answer is not stored, not even for the second for which Varnish would keep it.
    set beresp.ttl = 0s;
    set beresp.grace = 0s;
    set beresp.keep = 0s;
    set beresp.uncacheable = true;
    set beresp.http.Cache-Control = "no-store";
    set beresp.http.X-Request-Id = bereq.http.X-Request-Id;
    set beresp.http.Retry-After = "1";
    set beresp.http.Content-Type = "application/problem+json";
    set beresp.body = {"{"type":"urn:rashomon:problem:unavailable","title":"The server cannot be reached","status":503,"}
        + {""detail":"The cache has no answer of the server. Send the request again; a write may have been carried out." }"};
    return (deliver);
}
