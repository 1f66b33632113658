%% The settlement: two connection supervisors decide over the TCP socket how their link is carried.
%%
%% It runs after both have proved the cookie and before the VM knows the link, if both made an offer (inet_rdma_offer) of the
%% same version. Each message is an external term in a packet with a length of two bytes:
%%
%%     both        {hello, Facts}                       at once; the acceptor's may say where it listens over shm
%%     initiator   {try, Fabric}                        the next way that both could go; not shm if the hello says where
%%     acceptor    {listens, Port, Token, Addresses}    its listener takes only the peer with the token
%%     initiator   {failed, Fabric, Why}                it could not connect
%%     acceptor    {ready}                              its queue pair is up
%%     acceptor    {failed, Fabric, Why}                it could not listen or accept, or the initiator could not connect
%%     initiator   {go}                                 both queue pairs are up: the link moves, from here on
%%     initiator   {stay, Why}                          no way is left: the link stays on TCP
%%     acceptor    {stayed}                             it has heard that; packets of the distribution may come
%%
%% The initiator decides. To each `try` the acceptor gives one verdict, `ready` or `failed`; to `failed` the initiator tries the
%% next way. A failure before `go` costs the link nothing, as long as both sides know which message comes next. A side
%% that gets no message in time, or one of the wrong kind, does not know that: further messages of the peer would be
%% read as packets of the distribution. Its link ends, and the next one to that peer stays on TCP without a settlement,
%% for the time of the option fallback_retry_ms. An initiator sends `stay` before that: if the acceptor acknowledges,
%% both sides know the next message again.
%%
%% The smaller connect_timeout_ms of both bounds the whole. The socket is passive whenever a message may be the last one
%% of the settlement: the bytes behind it belong to the VM.
-module(inet_rdma_settlement).

-export([settle/6, broken_off/1]).

-type outcome() :: {move, inet_rdma_link:link(), Why :: binary()}
                 %% Tried: the fabrics that both nodes could go, and that failed.
                 | {stay, Why :: binary(), Tried :: [shm | verbs]}
                 | {refuse, Why :: binary()}
                 | {error, Why :: binary()}.

-record(settling, {
    socket :: inet:socket(),
    node :: binary(),
    config :: inet_rdma_options:config(),
    own :: map(),
    peer = #{} :: map(),
    %% The fabrics that have been tried, an ordset.
    tried = [] :: [shm | verbs],
    deadline :: integer()
}).

%% An acceptor waits that much longer than the initiator may take, so that it hears the decision; and an initiator that has
%% given up, for the acceptor's acknowledgement.
-define(GRACE_MS, 1000).
%% Texts and lists of the peer are refused above these sizes.
-define(TEXT_BYTES_MAX, 4096).
-define(LIST_MAX, 256).
%% Of this host: shm needs no address.
-define(SHM_ADDRESS, <<"127.0.0.1">>).
%% Addresses of the peer's devices that are tried at most.
-define(ADDRESSES_MAX, 4).

%% Own: this node's offer to the peer. Peer: that of the peer.
-spec settle(initiator | acceptor, inet:socket(), Node :: binary(), inet_rdma_options:config(), Own :: inet_rdma_offer:offer(),
             Peer :: inet_rdma_offer:offer()) -> outcome().
settle(_Role, _Socket, _Node, Config, _Own, none) ->
    stay(<<"the peer makes no offer: it does not run inet_rdma">>, Config, #{}, []);
settle(_Role, _Socket, _Node, Config, #{version := Ours}, #{version := Theirs} = Peer) when Ours =/= Theirs ->
    stay(text("the peer's settlement has version ~b, this node's ~b", [Theirs, Ours]), Config, Peer, []);
settle(_Role, _Socket, Node, Config, #{settles := false}, Peer) ->
    stay(text("the settlement with it ~ts", [broken_off_lately(broken_off(Node))]), Config, Peer, []);
settle(_Role, _Socket, _Node, Config, _Own, #{settles := false} = Peer) ->
    stay(<<"the peer does not settle: a settlement of it with this node broke off lately">>, Config, Peer, []);
settle(Role, Socket, Node, Config, _Own, Peer) ->
    settle(Role, Socket, Node, Config, Peer).

%% Why the last settlement with a node broke off, and how long no other is tried.
-spec broken_off(Node :: binary()) -> none | {Why :: binary(), LeftMs :: pos_integer()}.
broken_off(Node) -> inet_rdma_links:failure(settlement(Node)).

%% In the memory for ways that have failed. It holds for each VM of that name: the peer has not told its VM's number.
settlement(Node) -> {Node, 0, settlement}.

broken_off_lately(none) -> <<"broke off lately">>;
broken_off_lately({Why, LeftMs}) ->
    text("broke off lately and is tried again in ~b s: ~ts", [LeftMs div 1000 + 1, Why]).

settle(Role, Socket, Node, #{connect_timeout_ms := BoundMs} = Config, Offer) ->
    Started = now_ms(),
    Settling = #settling{socket = Socket, node = Node, config = Config, own = facts(Config),
                         peer = Offer, deadline = Started + BoundMs + grace_ms(Role)},
    try
        passive(Socket),
        run(Role, Settling, Started)
    catch
        throw:closed ->
            {error, <<"the peer closed the connection in the middle of the settlement">>};
        throw:{broken, Why} when Role =:= initiator ->
            stay_or_break_off(Settling, Why);
        throw:{broken, Why} ->
            break_off(Settling, Why)
    end.

%% The acceptor does not say what it must: if it acknowledges to stay, both are in step again.
stay_or_break_off(Settling, Why) ->
    try stay_together(Settling, Why)
    catch throw:_ -> break_off(Settling, Why)
    end.

grace_ms(initiator) -> 0;
grace_ms(acceptor) -> ?GRACE_MS.

break_off(#settling{node = Node, config = #{fallback_retry_ms := RetryMs}}, Why) ->
    ok = inet_rdma_links:failed(settlement(Node), Why, RetryMs),
    {error, text("the settlement broke off: ~ts", [Why])}.

run(initiator, #settling{own = Own} = Settling, Started) ->
    initiate(greet(initiator, Settling, Own, Started), [shm, verbs], []);
run(acceptor, #settling{own = #{fabric := Fabric} = Own} = Settling, Started) when Fabric =:= auto; Fabric =:= shm ->
    {Facts, State} = offer_shm(Settling, Own),
    try greet(acceptor, Settling, Facts, Started) of
        Greeted -> accept(Greeted, State)
    catch
        throw:Reason -> discard(State), throw(Reason)
    end;
run(acceptor, #settling{own = Own} = Settling, Started) ->
    accept(greet(acceptor, Settling, Own, Started), none).

greet(Role, #settling{config = #{connect_timeout_ms := BoundMs}} = Settling, Facts, Started) ->
    ok = tell(Settling, {hello, Facts}),
    {hello, Peer} = hear(Settling, [hello]),
    SharedMs = min(BoundMs, maps:get(timeout_ms, Peer)),
    Settling#settling{peer = Peer, deadline = Started + SharedMs + grace_ms(Role)}.

%% The initiator's decision. Messages that the acceptor sent before it received the decision are dropped.
stay_together(#settling{config = Config, peer = Peer, tried = Tried, deadline = Deadline} = Settling, Why) ->
    ok = tell(Settling, {stay, cut(Why)}),
    ok = await_stayed(Settling#settling{deadline = max(Deadline, now_ms() + ?GRACE_MS)}),
    stay(Why, Config, Peer, Tried).

await_stayed(Settling) ->
    Bytes = next(Settling),
    try parse(Bytes, [stayed]) of
        {stayed} -> ok
    catch
        throw:{broken, _} -> await_stayed(Settling)
    end.

stay(Why, #{required := Own}, Peer, Tried) ->
    case Own orelse maps:get(required, Peer, false) of
        true -> {refuse, Why};
        false -> {stay, Why, Tried}
    end.

%% The facts from which the peer sees the possible ways. Only a peer that has proved the cookie gets them.
facts(#{fabric := Fabric, required := Required, connect_timeout_ms := BoundMs}) ->
    Facts = #{fabric => Fabric, required => Required, timeout_ms => BoundMs},
    case inet_rdma_nif:load() of
        ok -> maps:merge(inet_rdma_nif:identity(), Facts);
        {error, _} -> Facts#{fabric := none, boot => <<>>, netns => 0, user => 0, instance => 0}
    end.

%% The reason not to try a fabric, or none.
obstacle(Fabric, #settling{own = Own, peer = Peer} = Settling) ->
    case obstacle(Fabric, Own, Peer) of
        none -> recent_failure(inet_rdma_links:failure(way(Settling, Fabric)));
        Why -> Why
    end.

recent_failure(none) -> none;
recent_failure({Reason, LeftMs}) ->
    text("it failed lately and is tried again in ~b s: ~ts", [LeftMs div 1000 + 1, Reason]).

way(#settling{node = Node, peer = #{instance := Instance}}, Fabric) -> {Node, Instance, Fabric}.

obstacle(_Fabric, #{fabric := none}, _Peer) ->
    <<"the native library of this node could not be loaded, its log says why">>;
obstacle(_Fabric, _Own, #{fabric := none}) ->
    <<"the native library of the peer could not be loaded, its log says why">>;
obstacle(Fabric, #{fabric := Own}, _Peer) when Own =/= auto, Own =/= Fabric ->
    text("the option fabric of this node is ~ts", [Own]);
obstacle(Fabric, _Own, #{fabric := Theirs}) when Theirs =/= auto, Theirs =/= Fabric ->
    text("the option fabric of the peer is ~ts", [Theirs]);
obstacle(shm, #{boot := Boot, netns := Namespace, user := User}, #{boot := Boot, netns := Namespace, user := User}) when
    Boot =/= <<>>
->
    none;
obstacle(shm, #{boot := Boot, netns := Namespace}, #{boot := Boot, netns := Namespace}) when Boot =/= <<>> ->
    <<"the peer runs as another user">>;
obstacle(shm, #{boot := Boot}, #{boot := Boot}) when Boot =/= <<>> ->
    <<"the peer is on this host, but in another network namespace">>;
obstacle(shm, _Own, _Peer) ->
    <<"the peer is on another host">>;
obstacle(verbs, _Own, _Peer) ->
    case inet_rdma_nif:check_verbs() of
        ok -> none;
        {error, Reason} -> reason(Reason)
    end.

%% The initiator's part.

%% Whys: why each way before could not be gone, last first.
initiate(Settling, [Fabric | Fabrics], Whys) ->
    case obstacle(Fabric, Settling) of
        none -> try_way(Settling, Fabric, Fabrics, Whys);
        Why -> initiate(Settling, Fabrics, [text("~ts: ~ts", [Fabric, Why]) | Whys])
    end;
initiate(Settling, [], Whys) ->
    stay_together(Settling, joined(Whys)).

try_way(#settling{config = #{fallback_retry_ms := RetryMs}} = Before, Fabric, Fabrics, Whys) ->
    Settling = tried(Before, Fabric),
    case unbroken(Settling, Fabric) of
        {broken, Why} ->
            stay_or_break_off(Settling, Why);
        {ok, Link, Why} ->
            %% iWARP (MPA, RFC 5044) has the side that connected send first: a keepalive, on its way before the peer may send.
            _ = inet_rdma_link:tick(Link),
            ok = tell(Settling, {go}),
            {move, Link, joined([Why | Whys])};
        {failed, Why} ->
            ok = inet_rdma_links:failed(way(Settling, Fabric), Why, RetryMs),
            initiate(Settling, Fabrics, [text("~ts: ~ts", [Fabric, Why]) | Whys])
    end.

unbroken(Settling, Fabric) ->
    try attempt(Settling, Fabric)
    catch throw:{broken, Why} -> {broken, Why}
    end.

tried(#settling{tried = Tried} = Settling, Fabric) ->
    Settling#settling{tried = ordsets:add_element(Fabric, Tried)}.

joined(Whys) -> iolist_to_binary(lists:join("; ", lists:reverse(Whys))).

attempt(#settling{peer = #{shm := {Port, Token}}} = Settling, shm) ->
    %% The acceptor's queue pair and port are there already.
    case connect(Settling, shm, Port, Token, [?SHM_ADDRESS], []) of
        {ok, Link, Why} -> {ok, Link, Why};
        {failed, Why} -> verdict(Settling, shm, {failed, Why})
    end;
attempt(Settling, Fabric) ->
    ok = tell(Settling, {'try', Fabric}),
    case hear(Settling, [listens, failed]) of
        {listens, Port, Token, Addresses} ->
            Connected = connect(Settling, Fabric, Port, Token, addresses(Settling, Addresses), []),
            verdict(Settling, Fabric, Connected);
        {failed, _, Why} ->
            {failed, Why}
    end.

%% The acceptor knows better why a queue pair was refused.
verdict(Settling, _Fabric, {ok, Link, Why}) ->
    try hear(Settling, [ready, failed]) of
        {ready} -> {ok, Link, Why};
        {failed, _, Theirs} -> inet_rdma_link:close(Link), {failed, Theirs}
    catch
        throw:Reason -> inet_rdma_link:close(Link), throw(Reason)
    end;
verdict(Settling, Fabric, {failed, Why}) ->
    ok = tell(Settling, {failed, Fabric, cut(Why)}),
    case hear(Settling, [ready, failed]) of
        {ready} -> {failed, Why};
        {failed, _, Theirs} -> {failed, Theirs}
    end.

%% The address that the TCP socket leads to comes first: the peer is known to be there.
addresses(#settling{socket = Socket}, Addresses) ->
    case inet:peername(Socket) of
        {ok, {Ip, _}} ->
            Same = list_to_binary(inet:ntoa(Ip)),
            {First, Others} = lists:partition(fun(Address) -> Address =:= Same end, Addresses),
            lists:sublist(First ++ Others, ?ADDRESSES_MAX);
        {error, _} ->
            throw(closed)
    end.

%% Whys: why the addresses before did not do, last first.
connect(_Settling, _Fabric, _Port, _Token, [], []) ->
    {failed, <<"the peer names no address">>};
connect(_Settling, _Fabric, _Port, _Token, [], Whys) ->
    {failed, joined(Whys)};
connect(Settling, Fabric, Port, Token, [Address | Addresses], Whys) ->
    %% A silent address must leave time for the others, and for the messages that follow.
    TimeoutMs = left(Settling) * 3 div 4 div (length(Addresses) + 1),
    Attempt = inet_rdma_nif:connect(Fabric, <<>>, {Address, Port}, Token, TimeoutMs, config(Settling, Fabric)),
    case connected(TimeoutMs, Settling, Attempt) of
        {ok, Link, Why} -> {ok, Link, Why};
        {failed, Why} -> connect(Settling, Fabric, Port, Token, Addresses, [Why | lists:delete(Why, Whys)])
    end.

%% The result of an attempt, which its message announces.
connected(TimeoutMs, #settling{node = Node, config = Config}, {ok, Attempt, Id}) ->
    receive
        {'$inet_rdma', Id, connected} ->
            case inet_rdma_link:open(Attempt, Node, link_config(Config)) of
                {ok, Link, Why} -> {ok, Link, Why};
                {error, Reason} -> {failed, reason(Reason)}
            end
    after TimeoutMs ->
            {failed, <<"timed out">>}
    end;
connected(_TimeoutMs, _Settling, {error, Reason}) ->
    {failed, reason(Reason)}.

%% The acceptor's part.

%% State: none; the port of a link, reserved, and the attempt to meet the peer at the place that the hello has named; the
%% fabric of a listener that has not met the peer; or a link, and why it is over its fabric, that waits for the decision.
accept(#settling{config = Config, peer = Peer, tried = Tried} = Settling, State) ->
    try hear(Settling, ['try', failed, go, stay]) of
        {'try', Fabric} ->
            discard(State),
            accept(tried(Settling, Fabric), listen(Settling, Fabric));
        {failed, Fabric, Why} ->
            _ = [ok = tell(Settling, {failed, Fabric, cut(Own)}) || Own <- failure(Settling, State, Fabric, Why)],
            discard(State),
            accept(offer_failed(Settling, State), none);
        {go} when element(1, State) =:= link ->
            {link, Link, Why} = State,
            {move, Link, Why};
        {go} when element(1, State) =:= offered ->
            met(Settling, State);
        {stay, Why} ->
            discard(State),
            ok = tell(Settling, {stayed}),
            %% The initiator's words: "this node" is the initiator in them.
            stay(text("the peer says: ~ts", [Why]), Config, Peer, Tried);
        {go} ->
            broken(<<"the peer decides before there is anything to decide">>)
    catch
        throw:Reason -> discard(State), throw(Reason)
    end.

%% The initiator has connected: this side's queue pair is there, or will be in a moment.
met(#settling{node = Node, config = Config} = Settling, {offered, LinkPort, Attempt, Id} = State) ->
    case inet_rdma_link:open(LinkPort, Attempt, Node, link_config(Config)) of
        {ok, Link, Why} ->
            {move, Link, Why};
        waiting ->
            ok = inet_rdma_nif:notify(Attempt),
            receive {'$inet_rdma', Id, connected} -> met(Settling, State)
            after left(Settling) -> broken(<<"the peer decides before it has connected">>)
            end;
        {error, Reason} ->
            broken(text("the peer decides, and this node has no queue pair: ~ts", [reason(Reason)]))
    end.

%% The reasons to tell the initiator when it could not connect.
failure(#settling{node = Node, config = Config}, {offered, LinkPort, Attempt, _Id}, shm, Why) ->
    %% The acceptor knows better why a queue pair was refused.
    case inet_rdma_link:open(LinkPort, Attempt, Node, link_config(Config)) of
        {ok, Link, _} -> inet_rdma_link:close(Link), [Why];
        waiting -> [Why];
        {error, Reason} -> [reason(Reason)]
    end;
failure(_Settling, {listens, Fabric}, Fabric, Why) ->
    [Why];
failure(_Settling, _State, _Fabric, _Why) ->
    [].

%% The initiator has tried the place that the hello named, without a `try`.
offer_failed(Settling, {offered, _LinkPort, _Attempt, _Id}) -> tried(Settling, shm);
offer_failed(Settling, _State) -> Settling.

discard({offered, LinkPort, Attempt, _Id}) ->
    inet_rdma_link:close(LinkPort),
    inet_rdma_nif:drop_attempt(Attempt);
discard({link, Link, _Why}) -> inet_rdma_link:close(Link);
discard(_) -> ok.

%% The acceptor offers a place over shm in its hello: an initiator that connects there needs no `try`. A failure here is
%% reported when the initiator asks for shm.
offer_shm(Settling, Own) ->
    case inet_rdma_link:reserve() of
        {ok, LinkPort} ->
            Token = inet_rdma_nif:token(),
            case inet_rdma_nif:expect_shm(Token, left(Settling), config(Settling, shm)) of
                {ok, Attempt, Id, Port} -> {Own#{shm => {Port, Token}}, {offered, LinkPort, Attempt, Id}};
                {error, _} -> inet_rdma_link:close(LinkPort), {Own, none}
            end;
        {error, _} ->
            {Own, none}
    end.

listen(Settling, Fabric) ->
    case allowed(Settling, Fabric) andalso own_addresses(Fabric) of
        {ok, Addresses} -> listen(Settling, Fabric, Addresses);
        {error, Why} -> cannot(Settling, Fabric, Why);
        false -> cannot(Settling, Fabric, <<"the option fabric forbids it">>)
    end.

listen(Settling, Fabric, Addresses) ->
    case expect(Settling, Fabric) of
        {ok, Attempt, Id, Port, Token} ->
            ok = tell(Settling, {listens, Port, Token, Addresses}),
            await(Settling, Fabric, Attempt, Id);
        {error, Reason} ->
            cannot(Settling, Fabric, reason(Reason))
    end.

expect(Settling, Fabric) ->
    Token = inet_rdma_nif:token(),
    Config = config(Settling, Fabric),
    Expecting = case Fabric of
                    shm -> inet_rdma_nif:expect_shm(Token, left(Settling), Config);
                    verbs -> inet_rdma_nif:expect_verbs(<<>>, Token, left(Settling), Config)
                end,
    case Expecting of
        {ok, Attempt, Id, Port} -> {ok, Attempt, Id, Port, Token};
        {error, Reason} -> {error, Reason}
    end.

%% The peer connects, or says why it does not: then accept/2 hears that next.
await(#settling{socket = Socket, node = Node, config = Config} = Settling, Fabric, Attempt, Id) ->
    ok = inet_rdma_nif:notify(Attempt),
    ok = setopts(Socket, [{active, once}]),
    receive
        {'$inet_rdma', Id, connected} ->
            passive(Socket),
            case inet_rdma_link:open(Attempt, Node, link_config(Config)) of
                {ok, Link, Why} -> ok = tell(Settling, {ready}), {link, Link, Why};
                {error, Reason} -> cannot(Settling, Fabric, reason(Reason))
            end;
        %% The socket is passive by that. There is no other message of it in the queue.
        {tcp, Socket, _} = Message ->
            self() ! Message,
            {listens, Fabric};
        {tcp_closed, Socket} ->
            throw(closed)
    after left(Settling) ->
            broken(<<"the peer did not connect in time">>)
    end.

cannot(Settling, Fabric, Why) ->
    ok = tell(Settling, {failed, Fabric, cut(Why)}),
    none.

allowed(#settling{own = #{fabric := auto}}, _Fabric) -> true;
allowed(#settling{own = #{fabric := Own}}, Fabric) -> Own =:= Fabric.

own_addresses(shm) ->
    {ok, [?SHM_ADDRESS]};
own_addresses(verbs) ->
    {ok, Interfaces} = inet:getifaddrs(),
    Own = [list_to_binary(inet:ntoa(Address)) || {_, Properties} <- Interfaces, {addr, Address} <- Properties],
    case inet_rdma_nif:check_verbs() of
        ok ->
            case inet_rdma_nif:verbs_addresses(Own) of
                {ok, []} -> {error, <<"no address of this host belongs to an RDMA device">>};
                {ok, Addresses} -> {ok, Addresses};
                {error, Reason} -> {error, reason(Reason)}
            end;
        {error, Reason} ->
            {error, reason(Reason)}
    end.

%% A link uses the ring alone: the VM joins the fragments of a large message by a copy wherever they lie.
link_config(Config) -> Config#{mode := dynamic, landing_buffers := 0}.

config(#settling{config = Config}, Fabric) -> (link_config(Config))#{fabric := Fabric}.

%% Messages.

tell(#settling{socket = Socket}, Message) ->
    case inet_tcp:send(Socket, term_to_binary(Message)) of
        ok -> ok;
        {error, _} -> throw(closed)
    end.

%% The next message, which must be one of these.
hear(Settling, Expected) ->
    parse(next(Settling), Expected).

next(#settling{socket = Socket} = Settling) ->
    receive
        %% It came while await/4 waited for the queue pair, too.
        {tcp, Socket, Bytes} -> Bytes
    after 0 ->
            case left(Settling) of
                0 -> broken(<<"the peer did not answer in time">>);
                LeftMs -> receive_packet(Socket, LeftMs)
            end
    end.

receive_packet(Socket, TimeoutMs) ->
    case inet_tcp:recv(Socket, 0, TimeoutMs) of
        {ok, Bytes} -> Bytes;
        {error, timeout} -> broken(<<"the peer did not answer in time">>);
        {error, _} -> throw(closed)
    end.

passive(Socket) -> setopts(Socket, [{active, false}, binary, {nodelay, true}]).

setopts(Socket, Options) ->
    case inet:setopts(Socket, Options) of
        ok -> ok;
        {error, _} -> throw(closed)
    end.

-spec broken(binary()) -> no_return().
broken(Why) -> throw({broken, Why}).

parse(Bytes, Expected) ->
    Message = try binary_to_term(Bytes, [safe])
              catch error:badarg -> broken(<<"the peer's answer is not one of the settlement">>)
              end,
    case is_message(Message) andalso lists:member(element(1, Message), Expected) of
        true -> Message;
        false -> broken(<<"the peer's answer is not one that can come here">>)
    end.

is_message({hello, #{fabric := Fabric, required := Required, boot := Boot, netns := Namespace, user := User,
                     instance := Instance, timeout_ms := TimeoutMs} = Facts}) ->
    is_place(maps:get(shm, Facts, none)) andalso is_integer(TimeoutMs) andalso TimeoutMs > 0 andalso is_atom(Fabric) andalso is_boolean(Required)
        andalso is_binary(Boot) andalso is_integer(Namespace) andalso is_integer(User) andalso is_integer(Instance);
is_message({'try', Fabric}) -> Fabric =:= shm orelse Fabric =:= verbs;
is_message({listens, Port, Token, Addresses}) ->
    is_place({Port, Token}) andalso is_short_list(Addresses) andalso lists:all(fun is_address/1, Addresses);
is_message({ready}) -> true;
is_message({go}) -> true;
is_message({stayed}) -> true;
is_message({stay, Why}) -> is_text(Why);
is_message({failed, Fabric, Why}) -> is_atom(Fabric) andalso is_text(Why);
is_message(_) -> false.

is_place(none) ->
    true;
is_place({Port, Token}) ->
    is_integer(Port) andalso Port > 0 andalso Port < 65536 andalso is_integer(Token) andalso Token >= 0
        andalso Token < 1 bsl 64;
is_place(_) ->
    false.

is_address(Address) ->
    is_binary(Address) andalso element(1, inet:parse_address(binary_to_list(Address))) =:= ok.

%% A proper one; length/1 fails for others.
is_short_list(List) when length(List) =< ?LIST_MAX -> true;
is_short_list(_) -> false.

is_text(Text) ->
    is_binary(Text) andalso byte_size(Text) =< ?TEXT_BYTES_MAX andalso is_list(unicode:characters_to_list(Text)).

%% A reason has parts of the peer's.
cut(Why) when byte_size(Why) =< ?TEXT_BYTES_MAX -> Why;
cut(Why) -> unicode:characters_to_binary(string:slice(Why, 0, ?TEXT_BYTES_MAX div 4)).

now_ms() -> erlang:monotonic_time(millisecond).

left(#settling{deadline = Deadline}) ->
    max(0, Deadline - now_ms()).

reason(Reason) -> unicode:characters_to_binary(inet_rdma:format_error(Reason)).

text(Format, Arguments) -> unicode:characters_to_binary(io_lib:format(Format, Arguments)).
