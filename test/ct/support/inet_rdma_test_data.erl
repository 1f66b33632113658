%% Binaries that differ in every part, sent between nodes and compared by hash. Runs in the nodes
%% under test.
-module(inet_rdma_test_data).

-export([
    make/1, send_and_compare/2, echo_and_compare/2, echo_terms/1, reflector/1, sink/1, exit_with/1
]).

-define(BLOCK, 1048576).
-define(TIMEOUT_MS, 120000).

%% Random bytes within a block show a shift, the block's number shows blocks swapped or sent twice.
-spec make(non_neg_integer()) -> binary().
make(Bytes) when Bytes =< ?BLOCK ->
    rand:bytes(Bytes);
make(Bytes) ->
    Block = rand:bytes(?BLOCK - 8),
    Blocks = <<<<I:64, Block/binary>> || I <- lists:seq(0, Bytes div ?BLOCK)>>,
    binary:copy(binary:part(Blocks, 0, Bytes)).

%% Sends one binary of each size to a process on the other node, which answers with size and hash.
-spec send_and_compare(node(), [non_neg_integer()]) -> ok | {different, non_neg_integer()}.
send_and_compare(Node, Sizes) ->
    with_remote(Node, sink, Sizes, fun(Binary) -> {byte_size(Binary), erlang:md5(Binary)} end).

%% Sends one binary of each size there and back.
-spec echo_and_compare(node(), [non_neg_integer()]) -> ok | {different, non_neg_integer()}.
echo_and_compare(Node, Sizes) ->
    with_remote(Node, reflector, Sizes, fun(Binary) -> Binary end).

%% Terms whose parts are binaries, which the runtime system hands over as vectors rather than
%% copies.
-spec echo_terms(node()) -> ok.
echo_terms(Node) ->
    Large = make(300000),
    Terms = [
        [],
        [make(Size) || Size <- lists:seq(60, 70)],
        [binary:part(Large, Offset, 1000) || Offset <- lists:seq(0, 299000, 1000)],
        {Large, [Large | Large], #{Large => <<Large/binary, 1:3>>}},
        [<<1:1>>, <<0:65535>>, fun erlang:md5/1, 1 bsl 100000, make_ref(), self()],
        lists:seq(1, 100000)
    ],
    {Pid, Monitor} = spawn_monitor(Node, ?MODULE, reflector, [self()]),
    [echo_term(Pid, Monitor, Term) || Term <- Terms],
    erlang:demonitor(Monitor, [flush]),
    ok.

echo_term(Pid, Monitor, Term) ->
    Ref = make_ref(),
    Pid ! {self(), Ref, Term},
    receive
        {Ref, Term} -> ok;
        {Ref, _Other} -> error({different, erlang:external_size(Term)});
        {'DOWN', Monitor, process, Pid, Reason} -> error({remote_died, Reason})
    after ?TIMEOUT_MS -> error(no_answer)
    end.

with_remote(Node, Function, Sizes, Expected) ->
    {Pid, Monitor} = spawn_monitor(Node, ?MODULE, Function, [self()]),
    Outcome = each_size(Pid, Monitor, Sizes, Expected),
    erlang:demonitor(Monitor, [flush]),
    Outcome.

each_size(_Pid, _Monitor, [], _Expected) ->
    ok;
each_size(Pid, Monitor, [Size | Sizes], Expected) ->
    Binary = make(Size),
    Size = byte_size(Binary),
    Ref = make_ref(),
    Pid ! {self(), Ref, Binary},
    Wanted = Expected(Binary),
    receive
        {Ref, Wanted} -> each_size(Pid, Monitor, Sizes, Expected);
        {Ref, _Other} -> {different, Size};
        {'DOWN', Monitor, process, Pid, Reason} -> error({remote_died, Size, Reason})
    after ?TIMEOUT_MS -> error({no_answer, Size})
    end.

%% Answers each binary with its size and hash, until the owner or the connection ends.
-spec sink(pid()) -> ok.
sink(Owner) ->
    serve(monitor(process, Owner), fun(Binary) -> {byte_size(Binary), erlang:md5(Binary)} end).

%% Answers each term with itself.
-spec reflector(pid()) -> ok.
reflector(Owner) ->
    serve(monitor(process, Owner), fun(Term) -> Term end).

serve(Owner, Answer) ->
    receive
        {'DOWN', Owner, process, _, _} ->
            ok;
        {From, Ref, Term} ->
            From ! {Ref, Answer(Term)},
            %% Lets go of a large one before the next.
            erlang:garbage_collect(),
            serve(Owner, Answer)
    end.

%% Exits with a reason that contains this many bytes, and their hash.
-spec exit_with(non_neg_integer()) -> no_return().
exit_with(Bytes) ->
    Binary = make(Bytes),
    exit({large, erlang:md5(Binary), Binary}).
