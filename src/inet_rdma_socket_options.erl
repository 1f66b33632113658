%% The options that a stream socket has and a node has not, in the manner of inet.
%%
%% The options of a node, which sockets have too, are in inet_rdma_options; those of gen_tcp that change nothing here in
%% inet_rdma_tcp_options.
-module(inet_rdma_socket_options).

-export([split/1, check/1, framing/2, active_option/1]).
-export_type([options/0, active/0, packet/0]).

%% A longer line comes in pieces of this size, unless the option buffer says another.
-define(BUFFER_BYTES, 65536).

-type options() :: #{active := active(), packet := packet(), packet_size := non_neg_integer(),
                     buffer := pos_integer(), ip := any | inet:ip_address(), family := any | inet | inet6,
                     send_timeout := timeout(), send_timeout_close := boolean(), tls := none | [term()]}.
%% As inet_rdma_nif:active/3 takes it: false, once, true, or a number to add to the count that is left.
-type active() :: passive | once | infinity | -32768..32767.
-type packet() :: raw | 1 | 2 | 4 | line.
-type checked() :: {active, active()} | {packet, packet()} | {packet_size, non_neg_integer()} | {buffer, pos_integer()} |
                   {ip, any | inet:ip_address()} | {family, inet | inet6} | {send_timeout, timeout()} |
                   {send_timeout_close, boolean()} | {tls, [term()]} | without_effect.
-type error() :: {error, {bad_option, atom(), term(), Expected :: string()} | {unknown_option, term()}}.

%% Takes the socket's options out of a list and checks them; of equal keys the last counts. Others: the rest of the
%% list.
-spec split([term()]) -> {ok, options(), Others :: [term()]} | error().
split(List) ->
    Unset = #{active => passive, packet => raw, packet_size => 0, buffer => ?BUFFER_BYTES, ip => any, family => any,
              send_timeout => infinity, send_timeout_close => false, tls => none},
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
check({active, Value}) -> active(Value);
check({packet, Value}) -> packet(Value);
check({packet_size, Value} = Option) when is_integer(Value), Value >= 0, Value =< 16#7fffffff -> {ok, Option};
check({packet_size, Value}) -> {error, {bad_option, packet_size, Value, "0 or bytes up to 2147483647"}};
check({buffer, Value} = Option) when is_integer(Value), Value > 0, Value =< 16#7fffffff -> {ok, Option};
check({buffer, Value}) -> {error, {bad_option, buffer, Value, "bytes from 1 to 2147483647"}};
check({ip, Value}) -> ip(Value);
check({ifaddr, Value}) -> ip(Value);
check({send_timeout, Value}) -> send_timeout(Value);
check({send_timeout_close, Value} = Option) when is_boolean(Value) -> {ok, Option};
check({send_timeout_close, Value}) -> {error, {bad_option, send_timeout_close, Value, "true or false"}};
check({tls, Value}) -> tls(Value);
check(inet) -> {ok, {family, inet}};
check(inet6) -> {ok, {family, inet6}};
check(Other) ->
    case inet_rdma_tcp_options:check(Other) of
        ok -> {ok, without_effect};
        unknown -> {error, {unknown_option, Other}};
        Error -> Error
    end.

active(true) -> {ok, {active, infinity}};
active(false) -> {ok, {active, passive}};
active(once) -> {ok, {active, once}};
active(Count) when is_integer(Count), Count >= -32768, Count =< 32767 -> {ok, {active, Count}};
active(Value) -> {error, {bad_option, active, Value, "true, false, once or an integer from -32768 to 32767"}}.

ip(any) -> {ok, {ip, any}};
ip({0, 0, 0, 0}) -> {ok, {ip, any}};
ip({0, 0, 0, 0, 0, 0, 0, 0}) -> {ok, {ip, any}};
ip(loopback) -> {ok, {ip, {127, 0, 0, 1}}};
ip(Value) ->
    case inet:is_ip_address(Value) of
        true -> {ok, {ip, Value}};
        false -> {error, {bad_option, ip, Value, "an IP address, any or loopback"}}
    end.

send_timeout(infinity) -> {ok, {send_timeout, infinity}};
send_timeout(Ms) when is_integer(Ms), Ms >= 0, Ms =< 16#7fffffff -> {ok, {send_timeout, Ms}};
send_timeout(Value) -> {error, {bad_option, send_timeout, Value, "milliseconds up to 2147483647, or infinity"}}.

%% Options of ssl for the TLS connection of a stream.
tls(Value) ->
    case inet_rdma_stream_tls:check(Value) of
        ok -> {ok, {tls, Value}};
        {error, Bad, Expected} -> {error, {bad_option, tls, Bad, Expected}}
    end.

packet(0) -> {ok, {packet, raw}};
packet(Value) ->
    case lists:member(Value, [raw, 1, 2, 4, line]) of
        true -> {ok, {packet, Value}};
        false -> {error, {bad_option, packet, Value, "raw, 0, 1, 2, 4 or line"}}
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
