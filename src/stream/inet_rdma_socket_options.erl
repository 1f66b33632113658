%% Options of stream sockets that nodes do not have, in the manner of inet.
%%
%% Options of both, nodes and sockets, are in inet_rdma_options.
-module(inet_rdma_socket_options).

-export([split/1, check/1, framing/2, active_option/1, tcp_options/0, tcp_value/1]).
-export_type([options/0, active/0, packet/0]).

%% A longer line comes in pieces of this size, unless the option buffer says another.
-define(BUFFER_BYTES, 65536).

-type options() :: #{
    active := active(),
    packet := packet(),
    packet_size := non_neg_integer(),
    buffer := pos_integer(),
    ip := any | inet:ip_address(),
    family := any | inet | inet6,
    send_timeout := timeout(),
    send_timeout_close := boolean(),
    tls := none | [term()]
}.
%% As inet_rdma_nif:active/3 takes it: false, once, true, or a number to add to the count that is
%% left.
-type active() :: passive | once | infinity | -32768..32767.
-type packet() :: raw | 1 | 2 | 4 | line.
-type checked() ::
    {active, active()}
    | {packet, packet()}
    | {packet_size, non_neg_integer()}
    | {buffer, pos_integer()}
    | {ip, any | inet:ip_address()}
    | {family, inet | inet6}
    | {send_timeout, timeout()}
    | {send_timeout_close, boolean()}
    | {tls, [term()]}
    | without_effect.
-type error() ::
    {error, {bad_option, atom(), term(), Expected :: string()} | {unknown_option, term()}}.

%% Takes the socket's options out of a list and checks them; of equal keys the last counts. Others:
%% the rest of the list.
-spec split([term()]) -> {ok, options(), Others :: [term()]} | error().
split(List) ->
    Unset = #{
        active => passive,
        packet => raw,
        packet_size => 0,
        buffer => ?BUFFER_BYTES,
        ip => any,
        family => any,
        send_timeout => infinity,
        send_timeout_close => false,
        tls => none
    },
    split(List, Unset, []).

split([Option | Rest], Options, Others) ->
    case check(Option) of
        {ok, {Key, Value}} -> split(Rest, Options#{Key := Value}, Others);
        {ok, without_effect} -> split(Rest, Options, Others);
        {error, {unknown_option, _}} -> split(Rest, Options, [Option | Others]);
        Error -> Error
    end;
split([], Options, Others) ->
    {ok, Options, lists:reverse(Others)}.

%% One option, as the native side takes it.
-spec check(term()) -> {ok, checked()} | error().
check({active, true}) ->
    {ok, {active, infinity}};
check({active, false}) ->
    {ok, {active, passive}};
check({active, once}) ->
    {ok, {active, once}};
check({active, Value}) ->
    checked(
        active,
        Value,
        is_in(Value, -32768, 32767),
        "true, false, once or an integer from -32768 to 32767"
    );
check({packet, 0}) ->
    {ok, {packet, raw}};
check({packet, Value}) ->
    checked(packet, Value, lists:member(Value, [raw, 1, 2, 4, line]), "raw, 0, 1, 2, 4 or line");
check({packet_size, Value}) ->
    checked(packet_size, Value, is_in(Value, 0, 16#7fffffff), "0 or bytes up to 2147483647");
check({buffer, Value}) ->
    checked(buffer, Value, is_in(Value, 1, 16#7fffffff), "bytes from 1 to 2147483647");
check({ip, Value}) ->
    ip(Value);
check({ifaddr, Value}) ->
    ip(Value);
check({send_timeout, infinity} = Option) ->
    {ok, Option};
check({send_timeout, Value}) ->
    checked(
        send_timeout,
        Value,
        is_in(Value, 0, 16#7fffffff),
        "milliseconds up to 2147483647, or infinity"
    );
check({send_timeout_close, Value}) ->
    checked(send_timeout_close, Value, is_boolean(Value), "true or false");
check({tls, Value}) ->
    tls(Value);
check(inet) ->
    {ok, {family, inet}};
check(inet6) ->
    {ok, {family, inet6}};
check({linger, {false, Seconds}}) when is_integer(Seconds), Seconds >= 0 -> {ok, without_effect};
check({raw, _, _, _} = Raw) ->
    check({raw, Raw});
check(binary) ->
    {ok, without_effect};
check(list) ->
    check({mode, list});
%% mode is an option of streams, too, with other values.
check({mode, binary}) ->
    {ok, without_effect};
check({mode, list}) ->
    {error, {bad_option, mode, list, "binary: data of these sockets does not come as lists"}};
check(local) ->
    check({local, true});
check({Key, Value} = Option) ->
    case lists:keyfind(Key, 1, tcp_options()) of
        {Key, Holds, Expected} ->
            case lists:member(Value, Holds) of
                true -> {ok, without_effect};
                false -> {error, {bad_option, Key, Value, Expected}}
            end;
        false ->
            {error, {unknown_option, Option}}
    end;
check(Other) ->
    {error, {unknown_option, Other}}.

is_in(Value, Min, Max) -> is_integer(Value) andalso Value >= Min andalso Value =< Max.

checked(Key, Value, true, _Expected) -> {ok, {Key, Value}};
checked(Key, Value, false, Expected) -> {error, {bad_option, Key, Value, Expected}}.

ip(any) -> {ok, {ip, any}};
ip({0, 0, 0, 0}) -> {ok, {ip, any}};
ip({0, 0, 0, 0, 0, 0, 0, 0}) -> {ok, {ip, any}};
ip(loopback) -> {ok, {ip, {127, 0, 0, 1}}};
ip(Value) -> checked(ip, Value, inet:is_ip_address(Value), "an IP address, any or loopback").

%% Options of ssl for the TLS connection of a stream.
tls(Value) ->
    case inet_rdma_tls_stream_connection:check(Value) of
        ok -> {ok, {tls, Value}};
        {error, Bad, Expected} -> {error, {bad_option, tls, Bad, Expected}}
    end.

%% As the native side takes the options packet and buffer.
-spec framing(packet(), Buffer :: pos_integer()) -> inet_rdma_nif:framing().
framing(raw, _Buffer) -> raw;
framing(1, _Buffer) -> length1;
framing(2, _Buffer) -> length2;
framing(4, _Buffer) -> length4;
framing(line, Buffer) -> {line, Buffer}.

%% The value that inet_rdma:getopts/2 gives.
-spec active_option(passive | once | infinity | pos_integer()) -> boolean() | once | pos_integer().
active_option(passive) -> false;
active_option(infinity) -> true;
active_option(Other) -> Other.

%% Options of gen_tcp and inet for features that a stream does not have, or has with one value only.
%% The value that a stream has is accepted, without effect. Any other value is refused, and the
%% error names the stream's value. docs/OPTIONS.md has the same list for users; parity_options_SUITE
%% compares both. An entry: key, accepted values, and the error's text about other values; getopts
%% gives the first accepted value.
-spec tcp_options() -> [{Key :: atom(), Holds :: [term()], Expected :: string()}].
tcp_options() ->
    [
        {nodelay, [true, false], "true or false"},
        {delay_send, [false], "false: nothing that is sent is held back"},
        {deliver, [term], "term"},
        {header, [0], "0: data does not come as lists"},
        {line_delimiter, [$\n], "10: a line ends with a newline"},
        {exit_on_close, [false],
            "false: when the peer ends its stream, this side can send until it closes"},
        {show_econnreset, [true],
            "true: a peer that is gone without a close is an error of its own"},
        {linger, [{false, 0}], "{false, _}: close/1 does not wait, and what was sent arrives"},
        {keepalive, [false], "false: nothing is sent on a silent connection"},
        {reuseaddr, [true, false], "true or false"},
        {port, [0], "0: the own port of a connection is the system's choice"},
        {recvtos, [false], "false: " ++ no_packets()},
        {recvtclass, [false], "false: " ++ no_packets()},
        {recvttl, [false], "false: " ++ no_packets()},
        {tos, [], "left out: " ++ no_packets()},
        {tclass, [], "left out: " ++ no_packets()},
        {ttl, [], "left out: " ++ no_packets()},
        {priority, [], "left out: " ++ no_packets()},
        {pktoptions, [], "left out: " ++ no_packets()},
        {recbuf, [], "left out: ring_bytes is the size of the receive buffer"},
        {sndbuf, [], "left out: sent bytes go to the peer's receive buffer, its ring_bytes"},
        {high_watermark, [], "left out: " ++ no_queue()},
        {low_watermark, [], "left out: " ++ no_queue()},
        {high_msgq_watermark, [], "left out: " ++ no_queue()},
        {low_msgq_watermark, [], "left out: " ++ no_queue()},
        {ipv6_v6only, [], "left out: ip says which addresses a listener has"},
        {bind_to_device, [], "left out: ip chooses the RDMA device"},
        {netns, [], "left out: a node uses its own network namespace"},
        {dontroute, [false], "false: the route to the peer is the system's"},
        {fd, [], "left out: a stream is not made of a descriptor"},
        {raw, [], "left out: a stream is no socket of the kernel"},
        {local, [], "left out: fabric shm keeps a connection within this host"},
        {inet_backend, [], "left out: streams have one implementation"},
        {tcp_module, [], "left out: streams have one implementation"}
    ].

no_packets() -> "a stream has no IP packets of its own".

no_queue() -> "send/2 queues nothing; sends_max bounds post_send/2".

%% The value that getopts gives.
-spec tcp_value(atom()) -> {ok, term()} | unknown.
tcp_value(Key) ->
    case lists:keyfind(Key, 1, tcp_options()) of
        {Key, [Value | _], _Expected} -> {ok, Value};
        _ -> unknown
    end.
