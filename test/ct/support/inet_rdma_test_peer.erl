%% A peer that is no node: it does the handshake of the distribution by hand over gen_tcp, with the
%% right cookie and an offer, and then says in the settlement whatever a case wants. Runs in the
%% node that runs the tests.
%%
%% With an offer of a session the link on TCP is one: its packets are in frames, without sealing or
%% compression.
%%
%% Functions fail (error/1) when the node under test does not do what the protocol says.
-module(inet_rdma_test_peer).

-export([
    open/0, open/1,
    close/1,
    accept/2,
    connect/3,
    half_open/3,
    offer/0, offer/1,
    hello/0, hello/1,
    nobody/0
]).
-export([
    say/2, say_raw/2, glue/2, hear/1, hear_raw/2, await_end/1, carry/1, packet/3, send/3, hang_up/1
]).
-export_type([peer/0, link/0]).

-include_lib("kernel/include/dist.hrl").

%% A name that EPMD knows, with its listening socket.
-type peer() :: #{
    name := string(), node := node(), listener := gen_tcp:socket(), epmd := gen_tcp:socket()
}.
%% After the handshake. residue: what came after the node's name. session: both offer one; its
%% counters are the bytes of its stream that the peer has sent, and 1 once the settlement is over.
-type link() :: #{
    socket := gen_tcp:socket(),
    node := node(),
    name := binary(),
    residue := binary(),
    session := none | counters:counters_ref()
}.

-define(TIMEOUT_MS, 20000).
-define(CREATION, 7).
-define(NEW_PID_EXT, 88).
-define(ATOM_UTF8_EXT, 118).
-define(PASS_THROUGH, 112).
-define(REG_SEND, 6).
%% No fragments and no atom cache: each message is a packet of its own, as nodes in C have it.
-define(FLAGS,
    (?MANDATORY_DFLAGS_25 bor ?DFLAG_MANDATORY_25_DIGEST bor ?DFLAG_UNLINK_ID bor ?DFLAG_V4_NC)
).

-spec open() -> peer().
open() -> open(inet_rdma_test_node:unique("fake")).

%% Listens and registers with EPMD until close/1.
-spec open(string()) -> peer().
open(Name) ->
    {ok, Listener} = gen_tcp:listen(0, [binary, {active, false}, {packet, 2}, {backlog, 128}]),
    {ok, Port} = inet:port(Listener),
    {ok, Host} = inet:gethostname(),
    #{
        name => Name,
        node => list_to_atom(Name ++ "@" ++ Host),
        listener => Listener,
        epmd => publish(Name, Port)
    }.

%% ALIVE2_REQ: the registration lasts as long as the connection.
publish(Name, Port) ->
    {ok, Epmd} = gen_tcp:connect({127, 0, 0, 1}, epmd_port(), [
        binary, {active, false}, {packet, raw}
    ]),
    Bytes = list_to_binary(Name),
    Request = <<120, Port:16, 72, 0, 6:16, 6:16, (byte_size(Bytes)):16, Bytes/binary, 0:16>>,
    ok = gen_tcp:send(Epmd, <<(byte_size(Request)):16, Request/binary>>),
    {ok, <<118, 0>>} = gen_tcp:recv(Epmd, 2, ?TIMEOUT_MS),
    Epmd.

epmd_port() -> list_to_integer(os:getenv("ERL_EPMD_PORT", "4369")).

-spec close(peer()) -> ok.
close(#{listener := Listener, epmd := Epmd}) ->
    gen_tcp:close(Epmd),
    gen_tcp:close(Listener).

%% Takes the next link; #{cookie := string(), offer := binary()}.
-spec accept(peer(), map()) -> link().
accept(#{listener := Listener, node := Node}, Options) ->
    {ok, Socket} = gen_tcp:accept(Listener, ?TIMEOUT_MS),
    {ok, <<$N, _Flags:64, _Creation:32, Length:16, Name:Length/binary, Residue/binary>>} = recv(
        Socket
    ),
    ok = gen_tcp:send(Socket, <<"sok">>),
    Mine = challenge(),
    Own = atom_to_binary(Node),
    ok = gen_tcp:send(Socket, <<
        $N,
        ?FLAGS:64,
        Mine:32,
        ?CREATION:32,
        (byte_size(Own)):16,
        Own/binary,
        (maps:get(offer, Options, <<>>))/binary
    >>),
    {ok, <<$r, Theirs:32, Digest:16/binary>>} = recv(Socket),
    Digest = digest(Options, Mine),
    ok = gen_tcp:send(Socket, <<$a, (digest(Options, Theirs))/binary>>),
    #{
        socket => Socket,
        node => Node,
        name => Name,
        residue => Residue,
        session => session(Options, Residue)
    }.

%% Connects to a node under this name of its own; options as above.
-spec connect(node(), node() | binary(), map()) -> link().
connect(To, Node, Options) ->
    {Socket, Theirs, Peer, Residue} = begun(To, Node, Options),
    Mine = challenge(),
    ok = gen_tcp:send(Socket, <<$r, Mine:32, (digest(Options, Theirs))/binary>>),
    {ok, <<$a, Digest:16/binary>>} = recv(Socket),
    Digest = digest(Options, Mine),
    #{
        socket => Socket,
        node => Node,
        name => Peer,
        residue => Residue,
        session => session(Options, Residue)
    }.

%% The same up to the node's challenge: the peer proves no cookie.
-spec half_open(node(), node() | binary(), map()) -> gen_tcp:socket().
half_open(To, Node, Options) ->
    {Socket, _Theirs, _Peer, _Residue} = begun(To, Node, Options),
    Socket.

begun(To, Node, Options) ->
    [Name, _Host] = string:lexemes(atom_to_list(To), "@"),
    {port, Port, _} = erl_epmd:port_please(Name, {127, 0, 0, 1}),
    {ok, Socket} = gen_tcp:connect({127, 0, 0, 1}, Port, [
        binary, {active, false}, {packet, 2}, {nodelay, true}
    ]),
    Own = latin1(Node),
    ok = gen_tcp:send(Socket, <<
        $N,
        ?FLAGS:64,
        ?CREATION:32,
        (byte_size(Own)):16,
        Own/binary,
        (maps:get(offer, Options, <<>>))/binary
    >>),
    {ok, <<"sok", _/binary>>} = recv(Socket),
    {ok, <<$N, _Flags:64, Theirs:32, _Creation:32, Length:16, Peer:Length/binary, Residue/binary>>} = recv(
        Socket
    ),
    {Socket, Theirs, Peer, Residue}.

session(#{offer := <<"inetrdma", _:16, _:5, 1:1, _/bits>>}, <<"inetrdma", _:16, _:5, 1:1, _/bits>>) ->
    counters:new(2, []);
session(_Options, _Residue) ->
    none.

latin1(Node) when is_atom(Node) -> atom_to_binary(Node, latin1);
latin1(Name) -> Name.

challenge() -> rand:uniform(1 bsl 32) - 1.

digest(Options, Challenge) ->
    erlang:md5([maps:get(cookie, Options, "inet_rdma_test"), integer_to_list(Challenge)]).

recv(Socket) -> gen_tcp:recv(Socket, 0, ?TIMEOUT_MS).

-spec offer() -> binary().
offer() -> offer(1).

%% With this version of the settlement. The peer is eager, offers a session and listens nowhere.
-spec offer(non_neg_integer()) -> binary().
offer(Version) -> <<"inetrdma", Version:16, 2#1100, 0:16, (rand:bytes(16))/binary>>.

hello() -> hello(#{}).

%% The name of a listener over shared memory that is not there.
-spec nobody() -> inet_rdma_nif:name().
nobody() -> <<"inet_rdma-", (binary:copy(<<"0">>, 32))/binary>>.

%% The first message of a peer on another host, but for these facts.
-spec hello(map()) -> {hello, map()}.
hello(Facts) ->
    Elsewhere = #{
        fabric => auto,
        required => false,
        boot => <<"another host">>,
        netns => 1,
        user => 0,
        instance => 1,
        timeout_ms => 5000,
        path => 1
    },
    {hello, maps:merge(Elsewhere, Facts)}.

%% One message of the settlement.
-spec say(link(), term()) -> ok | {error, term()}.
say(Link, Message) ->
    settled(Message, Link),
    say_raw(Link, term_to_binary(Message)).

settled({stayed}, #{session := Session}) when Session =/= none -> counters:put(Session, 2, 1);
settled(_Message, _Link) -> ok.

-spec say_raw(link(), binary()) -> ok | {error, term()}.
say_raw(#{socket := Socket}, Bytes) -> gen_tcp:send(Socket, Bytes).

%% A message of the settlement and packets of the distribution, in one write.
-spec glue(link(), [{message, term()} | {packet, iodata()}]) -> ok | {error, term()}.
glue(#{socket := Socket} = Link, Parts) ->
    ok = inet:setopts(Socket, [{packet, raw}]),
    Result = gen_tcp:send(Socket, [framed(Part, Link) || Part <- Parts]),
    ok = inet:setopts(Socket, [{packet, 2}]),
    Result.

framed({message, Term}, Link) ->
    settled(Term, Link),
    Bytes = term_to_binary(Term),
    <<(byte_size(Bytes)):16, Bytes/binary>>;
framed({packet, Packet}, #{session := none}) ->
    [<<(iolist_size(Packet)):32>>, Packet];
framed({packet, Packet}, #{session := Session}) ->
    Bytes = iolist_size(Packet),
    counters:add(Session, 1, 4 + Bytes),
    frame(0, [<<Bytes:32>>, Packet]).

%% It acknowledges nothing.
frame(Kind, Bytes) -> [<<Kind, (iolist_size(Bytes)):24, 0:64>>, Bytes].

%% The node's next message of the settlement.
-spec hear(link()) -> term() | closed.
hear(#{socket := Socket} = Link) ->
    case recv(Socket) of
        {ok, Bytes} ->
            Message = binary_to_term(Bytes),
            settled(Message, Link),
            Message;
        {error, closed} ->
            closed
    end.

%% Some bytes, in raw mode, or the end.
-spec hear_raw(link(), timeout()) -> {ok, binary()} | {error, term()}.
hear_raw(#{socket := Socket}, TimeoutMs) -> gen_tcp:recv(Socket, 0, TimeoutMs).

%% Reads until the node closes the link.
-spec await_end(link()) -> ok.
await_end(#{socket := Socket} = Link) ->
    case recv(Socket) of
        {ok, _} -> await_end(Link);
        {error, closed} -> ok;
        {error, econnreset} -> ok
    end.

%% The link stays on TCP: from here on packets of the distribution.
-spec carry(link()) -> ok.
carry(Link) ->
    settled({stayed}, Link),
    raw(Link).

raw(#{socket := Socket}) -> inet:setopts(Socket, [{packet, raw}]).

%% The packet that sends a term to a registered process.
-spec packet(link(), atom(), term()) -> iodata().
packet(#{node := Node}, Name, Term) ->
    Own = atom_to_binary(Node),
    From =
        <<?NEW_PID_EXT, ?ATOM_UTF8_EXT, (byte_size(Own)):16, Own/binary, 1:32, 0:32, ?CREATION:32>>,
    [
        <<?PASS_THROUGH, 131, 104, 4, 97, ?REG_SEND>>,
        From,
        bare(''),
        bare(Name),
        term_to_binary(Term)
    ].

%% Without the version byte.
bare(Term) ->
    <<131, Bytes/binary>> = term_to_binary(Term),
    Bytes.

%% Over a link that is carried.
-spec send(link(), atom(), term()) -> ok | {error, term()}.
send(#{socket := Socket} = Link, Name, Term) ->
    gen_tcp:send(Socket, framed({packet, packet(Link, Name, Term)}, Link)).

-spec hang_up(link()) -> ok.
hang_up(#{socket := Socket, session := Session} = Link) ->
    _ =
        case Session =/= none andalso counters:get(Session, 2) =:= 1 of
            true -> end_session(Link);
            false -> ok
        end,
    gen_tcp:close(Socket).

%% In order, as the node would wait for another connection. Bytes that were not read would reset
%% this one.
end_session(#{socket := Socket, session := Session} = Link) ->
    _ = raw(Link),
    _ = gen_tcp:send(Socket, frame(4, <<(counters:get(Session, 1)):64>>)),
    await_end(Link).
