%% Options of gen_tcp and inet for features that a stream does not have, or has with one value only.
%%
%% The value that a stream has anyway is accepted, without effect. Any other is refused, and the error names the value
%% that the stream has. docs/OPTIONS.md has the same list for users; parity_SUITE compares both.
-module(inet_rdma_tcp_options).

-export([list/0, check/1, value/1]).

%% key, the values that hold, what must be instead of any other. getopts gives the first value.
-spec list() -> [{Key :: atom(), Holds :: [term()], Expected :: string()}].
list() ->
    [{nodelay,             [true, false],   "true or false"},
     {delay_send,          [false],         "false: nothing that is sent is held back"},
     {deliver,             [term],          "term"},
     {header,              [0],             "0: data does not come as lists"},
     {line_delimiter,      [$\n],           "10: a line ends with a newline"},
     {exit_on_close,       [false],         "false: when the peer ends its stream, this side can send until it closes"},
     {show_econnreset,     [true],          "true: a peer that is gone without a close is an error of its own"},
     {linger,              [{false, 0}],    "{false, _}: close/1 does not wait, and what was sent arrives"},
     {keepalive,           [false],         "false: nothing is sent on a silent connection"},
     {reuseaddr,           [true, false],   "true or false"},
     {port,                [0],             "0: the own port of a connection is the system's choice"},
     {recvtos,             [false],         "false: " ++ no_packets()},
     {recvtclass,          [false],         "false: " ++ no_packets()},
     {recvttl,             [false],         "false: " ++ no_packets()},
     {tos,                 [],              "left out: " ++ no_packets()},
     {tclass,              [],              "left out: " ++ no_packets()},
     {ttl,                 [],              "left out: " ++ no_packets()},
     {priority,            [],              "left out: " ++ no_packets()},
     {pktoptions,          [],              "left out: " ++ no_packets()},
     {recbuf,              [],              "left out: ring_bytes is the size of the receive buffer"},
     {sndbuf,              [],              "left out: what is sent goes to the receive buffer of the peer, its ring_bytes"},
     {high_watermark,      [],              "left out: " ++ no_queue()},
     {low_watermark,       [],              "left out: " ++ no_queue()},
     {high_msgq_watermark, [],              "left out: " ++ no_queue()},
     {low_msgq_watermark,  [],              "left out: " ++ no_queue()},
     {ipv6_v6only,         [],              "left out: ip says which addresses a listener has"},
     {bind_to_device,      [],              "left out: ip chooses the RDMA device"},
     {netns,               [],              "left out: a node uses its own network namespace"},
     {dontroute,           [false],         "false: the route to the peer is the system's"},
     {fd,                  [],              "left out: a stream is not made of a descriptor"},
     {raw,                 [],              "left out: a stream is no socket of the kernel"},
     {local,               [],              "left out: fabric shm keeps a connection within this host"},
     {inet_backend,        [],              "left out: streams have one implementation"},
     {tcp_module,          [],              "left out: streams have one implementation"}].

no_packets() -> "a stream has no IP packets of its own".

no_queue() -> "send/2 queues nothing; sends_max bounds post_send/2".

%% unknown: none of them.
-spec check(term()) -> ok | unknown | {error, {bad_option, atom(), term(), Expected :: string()}}.
check({linger, {false, Seconds}}) when is_integer(Seconds), Seconds >= 0 -> ok;
check({raw, _, _, _} = Raw) -> check({raw, Raw});
check(binary) -> ok;
check(list) -> check({mode, list});
%% mode is an option of streams, too, with other values.
check({mode, binary}) -> ok;
check({mode, list}) -> {error, {bad_option, mode, list, "binary: data of these sockets does not come as lists"}};
check(local) -> check({local, true});
check({Key, Value}) ->
    case lists:keyfind(Key, 1, list()) of
        {Key, Holds, Expected} ->
            case lists:member(Value, Holds) of
                true -> ok;
                false -> {error, {bad_option, Key, Value, Expected}}
            end;
        false ->
            unknown
    end;
check(_Other) ->
    unknown.

%% The value that getopts gives.
-spec value(atom()) -> {ok, term()} | unknown.
value(Key) ->
    case lists:keyfind(Key, 1, list()) of
        {Key, [Value | _], _Expected} -> {ok, Value};
        _ -> unknown
    end.
