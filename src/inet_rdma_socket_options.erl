%% The options that a stream socket has and a node has not, in the manner of inet.
%%
%% The options of a node, which sockets have too, are in inet_rdma_options.
-module(inet_rdma_socket_options).

-export([split/1, check/1, active_option/1, packet_option/1]).
-export_type([options/0, active/0]).

-type options() :: #{active := active(), packet := inet_rdma_nif:framing(), ip := any | inet:ip_address(),
                     send_timeout := timeout(), send_timeout_close := boolean()}.
%% As inet_rdma_nif:active/3 takes it: false, once, true, or a number to add to what is left.
-type active() :: passive | once | infinity | -32768..32767.
-type checked() :: {active, active()} | {packet, inet_rdma_nif:framing()} | {ip, any | inet:ip_address()} |
                   {send_timeout, timeout()} | {send_timeout_close, boolean()} | without_effect.
-type error() :: {error, {bad_option, atom(), term(), Expected :: string()} | {unknown_option, term()}}.

%% The socket's options of a list, checked, of which later ones win, and what is left of the list.
-spec split([term()]) -> {ok, options(), Others :: [term()]} | error().
split(List) ->
    Unset = #{active => passive, packet => raw, ip => any, send_timeout => infinity, send_timeout_close => false},
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
check({ip, Value}) -> ip(Value);
check({send_timeout, Value}) -> send_timeout(Value);
check({send_timeout_close, Value} = Option) when is_boolean(Value) -> {ok, Option};
check({send_timeout_close, Value}) -> {error, {bad_option, send_timeout_close, Value, "true or false"}};
%% Data comes as binaries anyway, and nothing is delayed.
check(binary) -> {ok, without_effect};
check(list) -> {error, {bad_option, mode, list, "binary: data of these sockets does not come as lists"}};
check({nodelay, Value}) when is_boolean(Value) -> {ok, without_effect};
check({nodelay, Value}) -> {error, {bad_option, nodelay, Value, "true or false"}};
check(Other) -> {error, {unknown_option, Other}}.

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

packet(raw) -> {ok, {packet, raw}};
packet(0) -> {ok, {packet, raw}};
packet(1) -> {ok, {packet, length1}};
packet(2) -> {ok, {packet, length2}};
packet(4) -> {ok, {packet, length4}};
packet(Value) -> {error, {bad_option, packet, Value, "raw, 1, 2 or 4"}}.

%% The value that inet_rdma:getopts/2 gives.
-spec active_option(passive | once | infinity | pos_integer()) -> boolean() | once | pos_integer().
active_option(passive) -> false;
active_option(infinity) -> true;
active_option(Other) -> Other.

-spec packet_option(inet_rdma_nif:framing()) -> raw | 1 | 2 | 4.
packet_option(raw) -> raw;
packet_option(length1) -> 1;
packet_option(length2) -> 2;
packet_option(length4) -> 4.
