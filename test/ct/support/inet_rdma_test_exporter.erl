%% The metrics of prometheus.erl's default registry at http://127.0.0.1:PORT/metrics, by inets. Runs
%% in the node under test.
-module(inet_rdma_test_exporter).

-include_lib("inets/include/httpd.hrl").

-export([start/1, do/1]).

%% Returns the port. The directory must exist; nothing of it is served.
-spec start(file:filename()) -> inet:port_number().
start(Directory) ->
    {ok, _} = application:ensure_all_started(inets),
    {ok, Server} = inets:start(httpd, [
        {port, 0},
        {bind_address, {127, 0, 0, 1}},
        {server_name, "exporter"},
        {server_root, Directory},
        {document_root, Directory},
        {modules, [?MODULE]}
    ]),
    [{port, Port}] = httpd:info(Server, [port]),
    Port.

%% The callback of httpd's modules.
do(#mod{request_uri = "/metrics"}) ->
    Body = binary_to_list(prometheus_text_format:format()),
    Head = [
        {code, 200},
        {content_type, binary_to_list(prometheus_text_format:content_type())},
        {content_length, integer_to_list(length(Body))}
    ],
    {proceed, [{response, {response, Head, Body}}]};
do(#mod{}) ->
    {proceed, [{response, {404, "not found"}}]}.
