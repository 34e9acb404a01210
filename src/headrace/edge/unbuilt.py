"""Directives that nginx or a module of OpenResty has, and headrace has not built.

A configuration that names one gets to know that it is no typing error. nginx.org/en/docs/dirindex.html, and the
documentation of each module. Names are grouped by what they begin with.
"""

from __future__ import annotations

from typing import Final

_UPSTREAM: Final = """
    bind buffer_size buffering buffers busy_buffers_size cache cache_background_update cache_bypass cache_key
    cache_lock cache_lock_age cache_lock_timeout cache_max_range_offset cache_methods cache_min_uses cache_path
    cache_purge cache_revalidate cache_use_stale cache_valid connect_timeout force_ranges hide_header
    ignore_client_abort ignore_headers intercept_errors limit_rate max_temp_file_size next_upstream
    next_upstream_timeout next_upstream_tries no_cache pass pass_header pass_request_body pass_request_headers
    read_timeout request_buffering send_timeout socket_keepalive store store_access temp_file_write_size
"""
"""What fastcgi_, proxy_, scgi_ and uwsgi_ have in common."""

_NAMES: Final = {
    "": """
        access_by_lua_no_postpone add_after_body add_before_body add_trailer addition_types ancient_browser
        ancient_browser_value api autoindex balancer_by_lua_block balancer_by_lua_file brotli charset_map
        charset_types client_body_in_file_only client_body_in_single_buffer create_full_put_path dav_access
        dav_methods disable_symlinks echo empty_gif encrypted_session_expires encrypted_session_iv
        encrypted_session_key epoll_events f4f flv geo google_perftools_profiles gunzip gunzip_buffers hash
        health_check hls http3 image_filter ip_hash keepalive keepalive_min_timeout keyval keyval_zone
        least_conn least_time log_subrequest mail map match max_commands max_errors max_headers min_delete_depth
        mirror mirror_request_body modern_browser modern_browser_value mp4 msie_refresh ntlm open_file_cache_events
        override_charset pass perl pop3_auth pop3_capabilities post_action postpone_gzipping preread_buffer_size
        preread_timeout protocol queue random random_index real_ip_header real_ip_recursive referer_hash_bucket_size
        referer_hash_max_size resolver resolver_timeout rewrite_by_lua_no_postpone satisfy secure_link secure_link_md5
        secure_link_secret server_rewrite_by_lua_block server_rewrite_by_lua_file slice source_charset split_clients
        ssi ssl ssl_certificate_by_lua_block ssl_certificate_by_lua_file ssl_client_hello_by_lua_block
        ssl_client_hello_by_lua_file ssl_session_fetch_by_lua_block ssl_session_fetch_by_lua_file
        ssl_session_store_by_lua_block ssl_session_store_by_lua_file starttls state status_zone sticky stream
        stub_status subrequest_output_buffer_size timeout upstream upstream_list userid valid_referers xclient
        xml_entities zone
    """,
    "auth_": """
        basic basic_user_file delay http http_header http_pass_client_cert http_timeout jwt jwt_claim_set jwt_key_file
        jwt_require request request_set
    """,
    "autoindex_": """
        exact_size format localtime
    """,
    "brotli_": """
        buffers comp_level min_length static types window
    """,
    "drizzle_": """
        pass query server
    """,
    "echo_": """
        abort_parent after_body before_body blocking_sleep duplicate end exec flush foreach_split location
        location_async read_request_body request_body reset_timer sleep status subrequest subrequest_async
    """,
    "fastcgi_": """
        catch_stderr index keep_conn param send_lowat split_path_info
    """
    + _UPSTREAM,
    "geoip_": """
        city country org proxy proxy_recursive
    """,
    "grpc_": """
        bind buffer_size connect_timeout hide_header ignore_headers intercept_errors next_upstream
        next_upstream_timeout next_upstream_tries pass pass_header read_timeout send_timeout set_header
        socket_keepalive ssl_certificate ssl_certificate_key ssl_ciphers ssl_conf_command ssl_crl ssl_name
        ssl_password_file ssl_protocols ssl_server_name ssl_session_reuse ssl_trusted_certificate ssl_verify
        ssl_verify_depth
    """,
    "gzip_": """
        hash no_buffer static window
    """,
    "http3_": """
        hq max_concurrent_streams stream_buffer_size
    """,
    "image_filter_": """
        buffer interlace jpeg_quality sharpen transparency webp_quality
    """,
    "imap_": """
        auth capabilities client_buffer
    """,
    "js_": """
        access body_filter content fetch_buffer_size fetch_ciphers fetch_max_response_buffer_size fetch_protocols
        fetch_timeout fetch_trusted_certificate fetch_verify fetch_verify_depth filter header_filter import include
        path periodic preload_object preread set shared_dict_zone var
    """,
    "limit_": """
        conn conn_dry_run conn_log_level conn_status conn_zone except rate rate_after req req_dry_run req_log_level
        req_status req_zone
    """,
    "lua_": """
        capture_error_log http10_buffering load_resty_core malloc_trim regex_cache_max_entries regex_match_limit
        sa_restart shared_dict socket_send_lowat ssl_conf_command ssl_crl ssl_key_log ssl_verify_depth
        thread_cache_max_entries use_default_type worker_thread_vm_pool_size
    """,
    "memc_": """
        buffer_size cmds_allowed connect_timeout flags_to_last_modified next_upstream pass read_timeout send_timeout
        upstream_fail_timeout upstream_max_fails
    """,
    "memcached_": """
        bind buffer_size connect_timeout force_ranges gzip_flag next_upstream next_upstream_timeout
        next_upstream_tries pass read_timeout send_timeout socket_keepalive
    """,
    "more_": """
        clear_headers clear_input_headers set_headers set_input_headers
    """,
    "mp4_": """
        buffer_size max_buffer_size start_key_frame
    """,
    "perl_": """
        modules require set
    """,
    "postgres_": """
        pass query server
    """,
    "proxy_": """
        cache_convert_head cookie_domain cookie_flags cookie_path download_rate headers_hash_bucket_size
        headers_hash_max_size http_version method pass_error_message pass_trailers protocol protocol_timeout redirect
        requests responses send_lowat session_drop set_body set_header smtp_auth ssl_certificate ssl_certificate_key
        ssl_ciphers ssl_conf_command ssl_crl ssl_name ssl_password_file ssl_protocols ssl_server_name
        ssl_session_reuse ssl_trusted_certificate ssl_verify ssl_verify_depth timeout upload_rate
    """
    + _UPSTREAM,
    "quic_": """
        active_connection_id_limit bpf gso host_key retry
    """,
    "rds_": """
        csv json json_content_type json_format json_ret json_root
    """,
    "redis2_": """
        buffer_size connect_timeout literal_raw_query next_upstream pass query raw_queries raw_query read_timeout
        send_timeout
    """,
    "scgi_": """
        param
    """
    + _UPSTREAM,
    "session_": """
        log log_format log_zone
    """,
    "set_": """
        base32_alphabet base32_padding decode_base32 decode_base64 decode_hex decrypt_session encode_base32
        encode_base64 encode_hex encrypt_session escape_uri form_input form_input_multi formatted_gmt_time
        formatted_local_time hashed_upstream hmac_sha1 iconv if_empty local_today md5 misc_base32_padding
        quote_json_str quote_pgsql_str quote_sql_str random real_ip_from rotate secure_random_alphanum
        secure_random_lcalpha sha1 unescape_uri
    """,
    "smtp_": """
        auth capabilities client_buffer greeting_delay
    """,
    "srcache_": """
        default_expire fetch fetch_skip header_buffer_size ignore_content_encoding max_expire methods
        request_cache_control response_cache_control store store_hide_header store_max_size store_no_cache
        store_no_store store_pass_header store_private store_ranges store_skip store_statuses
    """,
    "ssi_": """
        ignore_recycled_buffers last_modified min_file_chunk silent_errors types value_length
    """,
    "ssl_": """
        certificate_cache object_cache_inheritable
    """,
    "sub_": """
        filter filter_last_modified filter_once filter_types
    """,
    "userid_": """
        domain expires flags mark name p3p path service
    """,
    "uwsgi_": """
        modifier1 modifier2 param ssl_certificate ssl_certificate_key ssl_ciphers ssl_conf_command ssl_crl ssl_name
        ssl_password_file ssl_protocols ssl_server_name ssl_session_reuse ssl_trusted_certificate ssl_verify
        ssl_verify_depth string
    """
    + _UPSTREAM,
    "xslt_": """
        last_modified param string_param stylesheet types
    """,
}

NAMES: Final = frozenset(prefix + name for prefix, names in _NAMES.items() for name in names.split())
"""All of them; one that is built meanwhile may still stand here."""

HINT: Final = "nginx has it; headrace has not built it yet"
