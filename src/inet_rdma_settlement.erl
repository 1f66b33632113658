%% The settlement: two connection supervisors decide over the TCP socket how their link is carried.
%%
%% It runs after both have proved the cookie and before the VM knows the link, if both made an offer (inet_rdma_offer) of the
%% same version. Each message is an external term in a packet with a length of two bytes:
%%
%%     both        {hello, Facts}                       at once
%%     initiator   {try, Fabric}                        the next way that both could go
%%     acceptor    {listens, Port, Token, Addresses}    its one-off listener takes the one peer that has the token
%%     acceptor    {ready}                              its queue pair is up
%%     either      {failed, Fabric, Why}                this side could not; the initiator tries the next way
%%     initiator   {go}                                 both queue pairs are up: the link moves, from here on
%%     initiator   {stay, Why}                          no way is left: the link stays on TCP
%%
%% The initiator decides. An acceptor that hears of no decision in time, or something that it does not understand, stays on
%% TCP; if the initiator has moved meanwhile, its queue pair ends with the acceptor's, and the link with it. Whatever fails
%% before `go` costs the link nothing. The option connect_timeout_ms bounds the whole.
-module(inet_rdma_settlement).

-export([settle/5]).

-type outcome() :: {move, inet_rdma_link:link(), Why :: binary()}
                 | {stay, Why :: binary()}
                 | {refuse, Why :: binary()}
                 | {error, closed}.

-record(settling, {
    socket :: inet:socket(),
    node :: binary(),
    config :: inet_rdma_options:config(),
    own :: map(),
    peer = #{} :: map(),
    deadline :: integer()
}).

%% An acceptor waits that much longer than the initiator may take, so that it hears the decision.
-define(GRACE_MS, 1000).
%% Addresses of the peer's devices that are tried at most.
-define(ADDRESSES_MAX, 4).

-spec settle(initiator | acceptor, inet:socket(), Node :: binary(), inet_rdma_options:config(), inet_rdma_offer:offer()) ->
          outcome().
settle(_Role, _Socket, _Node, Config, none) ->
    stay(<<"the peer makes no offer: it does not run inet_rdma">>, Config, #{});
settle(Role, Socket, Node, Config, #{version := Theirs, required := Required}) ->
    case inet_rdma_offer:version() of
        Theirs -> settle(Role, Socket, Node, Config);
        Ours -> stay(text("the peer's settlement has version ~b, this node's ~b", [Theirs, Ours]), Config,
                     #{required => Required})
    end.

settle(Role, Socket, Node, #{connect_timeout_ms := Bound} = Config) ->
    Grace = case Role of
                initiator -> 0;
                acceptor -> ?GRACE_MS
            end,
    Settling = #settling{socket = Socket, node = Node, config = Config, own = facts(Config),
                         deadline = erlang:monotonic_time(millisecond) + Bound + Grace},
    try
        ok = tell(Settling, {hello, Settling#settling.own}),
        {hello, Peer} = hear(Settling, [hello]),
        run(Role, Settling#settling{peer = Peer})
    catch
        throw:closed -> {error, closed};
        throw:Why -> given_up(Role, Settling, Why)
    end.

run(initiator, Settling) ->
    initiate(Settling, [shm, verbs], []);
run(acceptor, Settling) ->
    accept(Settling, none).

%% The initiator gave up waiting, or could not understand: it decides, and the peer hears of it if it still listens.
given_up(initiator, #settling{config = Config} = Settling, Why) ->
    _ = (catch tell(Settling, {stay, Why})),
    stay(Why, Config, #{});
given_up(acceptor, #settling{config = Config}, Why) ->
    stay(Why, Config, #{}).

stay(Why, #{required := Own}, Peer) ->
    case Own orelse maps:get(required, Peer, false) of
        true -> {refuse, Why};
        false -> {stay, Why}
    end.

%% What the peer must know to see which ways there are. Only a peer that has proved the cookie hears it.
facts(#{fabric := Fabric, required := Required}) ->
    case inet_rdma_nif:load() of
        ok -> maps:merge(inet_rdma_nif:identity(), #{fabric => Fabric, required => Required});
        {error, _} -> #{fabric => tcp, required => Required, boot => <<>>, netns => 0, user => 0, instance => 0}
    end.

%% What keeps a fabric from being tried, or none.
obstacle(Fabric, #settling{own = Own, peer = Peer} = Settling) ->
    case obstacle(Fabric, Own, Peer) of
        none -> recent_failure(inet_rdma_links:failure(way(Settling, Fabric)));
        Why -> Why
    end.

recent_failure(none) -> none;
recent_failure({Reason, LeftMs}) ->
    text("it failed lately and is tried again in ~b s: ~ts", [LeftMs div 1000 + 1, Reason]).

way(#settling{node = Node, peer = #{instance := Instance}}, Fabric) -> {Node, Instance, Fabric}.

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
        {error, Text} -> Text
    end.

%% The initiator's part.

%% Whys: why each way before could not be gone, last first.
initiate(Settling, [Fabric | Fabrics], Whys) ->
    case obstacle(Fabric, Settling) of
        none -> try_way(Settling, Fabric, Fabrics, Whys);
        Why -> initiate(Settling, Fabrics, [text("~ts: ~ts", [Fabric, Why]) | Whys])
    end;
initiate(#settling{config = Config, peer = Peer} = Settling, [], Whys) ->
    Why = joined(Whys),
    ok = tell(Settling, {stay, Why}),
    stay(Why, Config, Peer).

try_way(#settling{config = #{fallback_retry_ms := RetryMs}} = Settling, Fabric, Fabrics, Whys) ->
    ok = tell(Settling, {'try', Fabric}),
    case attempt(Settling, Fabric) of
        {ok, Link, Why} ->
            ok = tell(Settling, {go}),
            {move, Link, joined([Why | Whys])};
        {failed, Why} ->
            ok = inet_rdma_links:failed(way(Settling, Fabric), Why, RetryMs),
            initiate(Settling, Fabrics, [text("~ts: ~ts", [Fabric, Why]) | Whys])
    end.

joined(Whys) -> iolist_to_binary(lists:join("; ", lists:reverse(Whys))).

attempt(Settling, Fabric) ->
    case hear(Settling, [listens, failed]) of
        {listens, Port, Token, Addresses} -> connect(Settling, Fabric, Port, Token, addresses(Settling, Addresses));
        {failed, _, Why} -> {failed, Why}
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

connect(_Settling, _Fabric, _Port, _Token, []) ->
    {failed, <<"the peer names no address">>};
connect(Settling, Fabric, Port, Token, [Address | Addresses]) ->
    %% A silent address must leave time for the others.
    TimeoutMs = left(Settling) div (length(Addresses) + 1),
    case connected(Settling, inet_rdma_nif:connect(Fabric, Address, Port, Token, TimeoutMs, config(Settling, Fabric))) of
        {ok, Link, Why} -> ready(Settling, Link, Why);
        {failed, Why} when Addresses =:= [] -> {failed, Why};
        {failed, _} -> connect(Settling, Fabric, Port, Token, Addresses)
    end.

ready(Settling, Link, Why) ->
    try hear(Settling, [ready, failed]) of
        {ready} -> {ok, Link, Why};
        {failed, _, Theirs} -> inet_rdma_link:close(Link), {failed, Theirs}
    catch
        throw:Reason -> inet_rdma_link:close(Link), throw(Reason)
    end.

%% The result of an attempt, which its message announces.
connected(#settling{node = Node, config = Config} = Settling, {ok, Attempt, Id}) ->
    receive
        {'$inet_rdma', Id, connected} ->
            case inet_rdma_link:open(Attempt, Node, link_config(Config)) of
                {ok, Link, Why} -> {ok, Link, Why};
                {error, Reason} -> {failed, reason(Reason)}
            end
    after left(Settling) ->
            {failed, <<"timed out">>}
    end;
connected(_Settling, {error, Reason}) ->
    {failed, reason(Reason)}.

%% The acceptor's part. Link: the one that waits for the decision.

accept(#settling{config = Config, peer = Peer} = Settling, Link) ->
    try hear(Settling, ['try', go, stay, failed]) of
        {'try', Fabric} ->
            discard(Link),
            accept(Settling, listen(Settling, Fabric));
        {go} when Link =/= none ->
            {Settled, Why} = Link,
            {move, Settled, Why};
        {stay, Why} ->
            discard(Link),
            stay(Why, Config, Peer);
        _ ->
            throw(<<"the peer decides before there is anything to decide">>)
    catch
        throw:Reason -> discard(Link), throw(Reason)
    end.

discard(none) -> ok;
discard({Link, _Why}) -> inet_rdma_link:close(Link).

listen(Settling, Fabric) ->
    case allowed(Settling, Fabric) andalso own_addresses(Fabric) of
        {ok, Addresses} -> listen(Settling, Fabric, Addresses);
        {error, Why} -> cannot(Settling, Fabric, Why);
        false -> cannot(Settling, Fabric, <<"the option fabric forbids it">>)
    end.

listen(#settling{node = Node, config = Config} = Settling, Fabric, Addresses) ->
    Token = inet_rdma_nif:token(),
    case inet_rdma_nif:expect(Fabric, <<>>, Token, left(Settling), config(Settling, Fabric)) of
        {ok, Attempt, Id, Port} ->
            ok = tell(Settling, {listens, Port, Token, Addresses}),
            await(Settling, Fabric, Attempt, Id, Node, Config);
        {error, Reason} ->
            cannot(Settling, Fabric, reason(Reason))
    end.

%% The peer connects, or says why it does not.
await(#settling{socket = Socket} = Settling, Fabric, Attempt, Id, Node, Config) ->
    ok = activate(Socket),
    receive
        {'$inet_rdma', Id, connected} ->
            case inet_rdma_link:open(Attempt, Node, link_config(Config)) of
                {ok, Link, Why} -> ok = tell(Settling, {ready}), {Link, Why};
                {error, Reason} -> cannot(Settling, Fabric, reason(Reason))
            end;
        {tcp, Socket, _} = Message ->
            %% A decision without the queue pair: accept/2 reads it.
            self() ! Message,
            none;
        {tcp_closed, Socket} ->
            throw(closed)
    after left(Settling) ->
            throw(<<"the peer did not connect in time">>)
    end.

cannot(Settling, Fabric, Why) ->
    ok = tell(Settling, {failed, Fabric, Why}),
    none.

allowed(#settling{own = #{fabric := auto}}, _Fabric) -> true;
allowed(#settling{own = #{fabric := Own}}, Fabric) -> Own =:= Fabric.

own_addresses(shm) ->
    {ok, [<<"127.0.0.1">>]};
own_addresses(verbs) ->
    {ok, Interfaces} = inet:getifaddrs(),
    Own = [list_to_binary(inet:ntoa(Address)) || {_, Properties} <- Interfaces, {addr, Address} <- Properties],
    case inet_rdma_nif:check_verbs() of
        ok ->
            case inet_rdma_nif:verbs_addresses(Own) of
                {ok, []} -> {error, <<"no address of this host belongs to an RDMA device">>};
                Result -> Result
            end;
        Error ->
            Error
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
hear(#settling{socket = Socket} = Settling, Expected) ->
    ok = activate(Socket),
    receive
        {tcp, Socket, Bytes} -> parse(Bytes, Expected);
        {tcp_closed, Socket} -> throw(closed);
        {tcp_error, Socket, _} -> throw(closed)
    after left(Settling) ->
            _ = inet:setopts(Socket, [{active, false}]),
            throw(<<"the peer did not answer in time">>)
    end.

activate(Socket) ->
    case inet:setopts(Socket, [{active, once}, binary]) of
        ok -> ok;
        {error, _} -> throw(closed)
    end.

parse(Bytes, Expected) ->
    Message = try binary_to_term(Bytes, [safe])
              catch error:badarg -> throw(<<"the peer's answer is not one of the settlement">>)
              end,
    case is_message(Message) andalso lists:member(element(1, Message), Expected) of
        true -> Message;
        false -> throw(<<"the peer's answer is not one that can come here">>)
    end.

is_message({hello, #{fabric := Fabric, required := Required, boot := Boot, netns := Namespace, user := User,
                     instance := Instance}}) ->
    is_atom(Fabric) andalso is_boolean(Required) andalso is_binary(Boot) andalso is_integer(Namespace)
        andalso is_integer(User) andalso is_integer(Instance);
is_message({'try', Fabric}) -> Fabric =:= shm orelse Fabric =:= verbs;
is_message({listens, Port, Token, Addresses}) ->
    is_integer(Port) andalso Port > 0 andalso Port < 65536 andalso is_integer(Token) andalso Token >= 0
        andalso Token < 1 bsl 64 andalso is_list(Addresses) andalso lists:all(fun is_address/1, Addresses);
is_message({ready}) -> true;
is_message({go}) -> true;
is_message({stay, Why}) -> is_text(Why);
is_message({failed, Fabric, Why}) -> is_atom(Fabric) andalso is_text(Why);
is_message(_) -> false.

is_address(Address) ->
    is_binary(Address) andalso element(1, inet:parse_address(binary_to_list(Address))) =:= ok.

is_text(Text) -> is_binary(Text) andalso is_list(unicode:characters_to_list(Text)).

left(#settling{deadline = Deadline}) ->
    max(0, Deadline - erlang:monotonic_time(millisecond)).

reason(Reason) -> unicode:characters_to_binary(inet_rdma:format_error(Reason)).

text(Format, Arguments) -> unicode:characters_to_binary(io_lib:format(Format, Arguments)).
