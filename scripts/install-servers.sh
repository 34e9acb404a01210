#!/bin/sh
# The programs that tests and benchmarks talk to. Installs only what is missing, and only as root;
# elsewhere it names what is missing and goes on (the tests that need it are skipped, or fail when
# HEADRACE_NO_SKIP=1).
set -eu

missing=""
want() { # want PACKAGE FILE...: the package is there when one of the files is
    package=$1
    shift
    for file; do
        for found in $file; do
            [ -e "$found" ] && return 0
        done
    done
    missing="$missing $package"
}

want nginx-light /usr/sbin/nginx
want libnginx-mod-http-lua /usr/lib/nginx/modules/ngx_http_lua_module.so
want libnginx-mod-http-echo /usr/lib/nginx/modules/ngx_http_echo_module.so
want libnginx-mod-http-headers-more-filter /usr/lib/nginx/modules/ngx_http_headers_more_filter_module.so
want libnginx-mod-http-set-misc /usr/lib/nginx/modules/ngx_http_set_misc_module.so
want wrk /usr/bin/wrk
want strace /usr/bin/strace
want curl /usr/bin/curl
want redis-server /usr/bin/redis-server
want memcached /usr/bin/memcached
want lua-nginx-redis /usr/share/lua/5.1/nginx/redis.lua
want lua-nginx-memcached /usr/share/lua/5.1/nginx/memcached.lua
want lua-nginx-string /usr/share/lua/5.1/nginx/string.lua
want lua-nginx-websocket /usr/share/lua/5.1/nginx/websocket/server.lua
want lua-resty-lrucache /usr/share/lua/5.1/resty/lrucache.lua
want gcc /usr/bin/gcc
want libc6-dev /usr/include/stdio.h
want make /usr/bin/make
want nodejs /usr/bin/node /usr/local/bin/node
want npm /usr/bin/npm /usr/local/bin/npm
want lua-nginx-dns /usr/share/lua/5.1/nginx/dns/resolver.lua
want lua-nginx-cookie /usr/share/lua/5.1/nginx/cookie.lua
want lua-nginx-redis-connector /usr/share/lua/5.1/nginx/redis/connector.lua
want lua-cjson "/usr/lib/*/lua/5.1/cjson.so"
want lua-lpeg "/usr/lib/*/lua/5.1/lpeg.so"
want lua-filesystem "/usr/lib/*/lua/5.1/lfs.so"
want lua-socket "/usr/lib/*/lua/5.1/socket/core.so"
want lua-zlib "/usr/lib/*/lua/5.1/zlib.so"
want lua-posix "/usr/lib/*/lua/5.1/posix.so"
want lua-rex-pcre2 "/usr/lib/*/lua/5.1/rex_pcre2.so"
want lua-iconv "/usr/lib/*/lua/5.1/iconv.so"
want lua-bit32 "/usr/lib/*/lua/5.1/bit32.so"
want lua-expat "/usr/lib/*/lua/5.1/lxp.so"
want lua-luaossl "/usr/lib/*/lua/5.1/_openssl.so"
want lua-yaml "/usr/lib/*/lua/5.1/yaml.so"
want lua-mpack "/usr/lib/*/lua/5.1/mpack.so"
want lua-argparse /usr/share/lua/5.1/argparse.lua
want lua-messagepack /usr/share/lua/5.1/MessagePack.lua
want lua-basexx /usr/share/lua/5.1/basexx.lua
if [ -n "${HEADRACE_LUA_LIBRARIES:-}" ]; then
    want mariadb-server /usr/sbin/mariadbd
    want postgresql "/usr/lib/postgresql/*/bin/postgres"
fi
want systemd /usr/bin/journalctl
want systemd-journal-remote /lib/systemd/systemd-journal-remote
want ruby /usr/bin/ruby
want libpcre2-8-0 "/usr/lib/*/libpcre2-8.so.0"

[ -n "$missing" ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "not installed (needs root and apt):$missing" >&2
    exit 0
fi
export DEBIAN_FRONTEND=noninteractive
# Packages must not start their servers: the tests start their own on free ports.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod +x "$policy"
    trap 'rm -f "$policy"' EXIT
fi
apt-get update -qq || true
# shellcheck disable=SC2086
apt-get install -y -qq --no-install-recommends $missing
