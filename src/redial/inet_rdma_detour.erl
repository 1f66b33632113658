%% A detour: where no address of a session's peer answers, the session's TCP connection goes over a
%% neighbour, a node with links to both. The neighbour passes bytes (inet_rdma_detour_relay); to the
%% peer its connection is one more attempt to resume (inet_rdma_resume), which proves the session's
%% secret end to end. With the option `security tls` the handshake of TLS goes end to end, too: the
%% neighbour reads nothing, and can forge nothing. With the option `detour connect` the connection
%% on which a session begins may go over a neighbour, too (inet_rdma_setup): to the peer it is a
%% node that connects.
%%
%% The asking side connects to the distribution listener of the neighbour, and goes through TLS
%% where its session with the neighbour began inside it. docs/PROTOCOL.md has the messages
%% ("Detours"). A proof is an HMAC-SHA256 of all earlier messages under the secret of that session.
%% The labels are not those of an attempt to resume: no proof serves there.
%%
%% No detour goes over another one: neither side uses a link that is on a detour itself, and what a
%% neighbour passes begins with an attempt to resume or the handshake of a link, which end at the
%% node To. So detours form no loop.
-module(inet_rdma_detour).

-export([begin_with/4, connect/3, open/2, has_neighbours/1, listens/1]).
-export([via/1, is_detoured/1, facts/1, handle_restored/1, message/1, handle_message/2]).
%% Used by the neighbour.
-export([is_request/1, parse/1, challenge/2, is_proof/3, is_usable/1, dial/2]).
%% Called by inet_rdma_bounded.
-export([ask/4]).

-import(inet_rdma_clock, [deadline/1, left/1]).

-include_lib("kernel/include/logger.hrl").

-define(MAGIC, "inet_rdma detour").
-define(VERSION, 1).
-define(NEIGHBOURS_MAX, 3).
%% Time for which a neighbour that opened no detour to a node is not asked for one again, and a node
%% without neighbours seeks none.
-define(FORGET_MS, 10000).
%% First byte of the message to the peer's guard. Others of guards begin with $t, $w or 131.
-define(DETOUR, $d).
-define(CONNECT_MS, 2000).

%% A session has begun with this peer, which accepts connections there; none: nowhere, or it is not
%% known. Via: the neighbour over which this side has made the connection.
-spec begin_with(
    inet_rdma_session:t(),
    Node :: binary(),
    Listens :: inet_rdma_peer_node:address() | none,
    Via :: binary() | none
) -> ok.
begin_with(Session, Node, Listens, Via) ->
    Name = inet_rdma_session:name(Session),
    ok = inet_rdma_detours:set_fact(Name, node, Node),
    ok = inet_rdma_detours:set_fact(Name, listens, Listens),
    case Via of
        none -> ok;
        _ -> ok = remember(Session, Via, inet_rdma_session:ends(Session))
    end,
    ok.

%% Where the peer accepts connections, as far as that is known from how the session has begun.
-spec listens(inet_rdma_session:t()) -> inet_rdma_peer_node:address() | none.
listens(Session) -> inet_rdma_detours:fact(inet_rdma_session:name(Session), listens).

%% The caller owns the connection, which leads to the distribution listener of the node. Via: the
%% neighbour. no_neighbour: no other node has a link that could be asked; off: the option detour.
-spec connect(inet_rdma_session:t(), Node :: binary(), TimeoutMs :: non_neg_integer()) ->
    {ok, inet_rdma_transport:tcp(), Via :: binary()} | {error, off | no_neighbour | term()}.
connect(Session, Node, TimeoutMs) ->
    case inet_rdma_options:node() of
        {ok, #{detour := Detour}} when Detour =/= false ->
            case open(Node, TimeoutMs) of
                {ok, Connection, Via} ->
                    ok = remember(Session, Via, inet_rdma_transport:ends(Connection)),
                    {ok, Connection, Via};
                Error ->
                    Error
            end;
        _ ->
            {error, off}
    end.

%% The same for a node with which there need be no session.
-spec open(Node :: binary(), TimeoutMs :: non_neg_integer()) ->
    {ok, inet_rdma_transport:tcp(), Via :: binary()} | {error, no_neighbour | term()}.
open(Node, TimeoutMs) ->
    Neighbours = lists:sublist(shuffled(neighbours(Node)), ?NEIGHBOURS_MAX),
    first(Neighbours, Node, deadline(TimeoutMs), {error, no_neighbour}).

-spec has_neighbours(Node :: binary()) -> boolean().
has_neighbours(Node) -> neighbours(Node) =/= [].

%% Nodes with a direct link to this one, but those that lately opened no detour to that node.
neighbours(Node) ->
    [
        {Neighbour, Session}
     || #{node := Neighbour, controller := {session, Session}} <- inet_rdma_links:all(),
        Neighbour =/= Node,
        inet_rdma_links:failure(target(Neighbour, Node)) =:= none,
        is_usable(Session)
    ].

target(Neighbour, Node) -> {Neighbour, 0, {detour, Node}}.

shuffled(List) ->
    [
        Element
     || {_, Element} <- lists:sort([
            {erlang:phash2(erlang:unique_integer()), Element}
         || Element <- List
        ])
    ].

first([], _Node, _Deadline, Last) ->
    Last;
first([{Via, ViaSession} | Others], Node, Deadline, _Last) ->
    inet_rdma_links:count(detours_asked),
    ForThisMs = left(Deadline) div (1 + length(Others)),
    case
        inet_rdma_bounded:tied_call(
            ?MODULE, ask, [{Via, ViaSession}, Node, self(), ForThisMs], ForThisMs
        )
    of
        {ok, {ok, Connection}} ->
            inet_rdma_links:count(detours_opened),
            {ok, Connection, Via};
        {ok, {error, Reason}} ->
            refused(Via, Node, Reason),
            first(Others, Node, Deadline, {error, Reason});
        {exit, Reason} ->
            first(Others, Node, Deadline, {error, Reason});
        timeout ->
            first(Others, Node, Deadline, {error, timeout})
    end.

refused(Via, Node, Reason) ->
    ok = inet_rdma_recorder:record(redial, Node, #{cause => Reason, why => ["over ", Via]}),
    Why = inet_rdma_text:text("~tp", [Reason]),
    %% The others say nothing of the neighbour: a newer request has displaced this one, for example.
    _ =
        lists:member(Reason, [timeout, closed, econnreset]) orelse
            inet_rdma_links:failed(target(Via, Node), Why, ?FORGET_MS),
    ok.

%% Asks one neighbour, in a process of its own: TLS's connections are linked to it. Owner gets the
%% connection.
-spec ask(
    {Via :: binary(), inet_rdma_session:t()},
    Node :: binary(),
    Owner :: pid(),
    TimeoutMs :: non_neg_integer()
) ->
    {ok, inet_rdma_transport:t()} | {error, term()}.
ask({Via, Session}, Node, Owner, TimeoutMs) ->
    Deadline = deadline(TimeoutMs),
    case connect_to(Via, Session, TimeoutMs) of
        {ok, Connection} ->
            case request(Session, Node, Connection, Deadline) of
                ok -> hand_over(inet_rdma_session:take(Session, Connection), Owner);
                Error -> Error
            end;
        Error ->
            Error
    end.

connect_to(Via, Session, TimeoutMs) ->
    Deadline = deadline(TimeoutMs),
    case dial(Session, TimeoutMs) of
        {ok, Connection} -> inet_rdma_session:secure(Session, Connection, Via, left(Deadline));
        Error -> Error
    end.

request(Session, Node, Connection, Deadline) ->
    Said = <<
        (inet_rdma_session:name(Session))/binary, (inet_rdma_nif:nonce())/binary, Node/binary
    >>,
    case exchange(Connection, <<?MAGIC, ?VERSION, Said/binary>>, Deadline) of
        {ok, <<$c, Nonce:16/binary, Proof:32/binary>>} ->
            Before = <<Said/binary, Nonce/binary>>,
            case verify(Session, Proof, ["detour challenge", Before]) of
                true ->
                    answered(
                        exchange(
                            Connection, [$p, prove(Session, ["detour asker", Before])], Deadline
                        )
                    );
                false ->
                    {error, wrong_proof}
            end;
        Answer ->
            answered(Answer)
    end.

answered({ok, <<$d>>}) -> ok;
answered({ok, <<$n>>}) -> {error, no_link};
answered({ok, <<$b>>}) -> {error, busy};
answered({ok, <<$u>>}) -> {error, unknown_session};
answered({ok, _}) -> {error, unexpected_answer};
answered(Error) -> Error.

exchange(Connection, Message, Deadline) ->
    case inet_rdma_transport:send_message(Connection, iolist_to_binary(Message)) of
        ok -> inet_rdma_transport:recv_message(Connection, left(Deadline));
        Error -> Error
    end.

hand_over({ok, Connection}, Owner) ->
    case inet_rdma_transport:give(Connection, Owner) of
        ok -> {ok, Connection};
        Error -> Error
    end;
hand_over(Error, _Owner) ->
    Error.

%% By its two addresses the connection is known again when it is the session's.
remember(Session, Via, {ok, Ends}) ->
    inet_rdma_detours:set_fact(inet_rdma_session:name(Session), tried, {Via, Ends});
remember(_Session, _Via, {error, _}) ->
    ok.

%% The session has another TCP connection. Tells whether it is a detour, and over which neighbour:
%% then the peer's guard gets message/1. Logs a change.
-spec handle_restored(inet_rdma_session:t()) -> Via :: binary() | none.
handle_restored(Session) ->
    Via =
        case inet_rdma_detours:fact(inet_rdma_session:name(Session), tried) of
            {Over, Ends} ->
                case inet_rdma_session:ends(Session) of
                    {ok, Ends} -> Over;
                    _ -> none
                end;
            none ->
                none
        end,
    ok = goes_over(Via, Session),
    Via.

goes_over(Via, Session) ->
    Before = via(Session),
    Name = inet_rdma_session:name(Session),
    ok = inet_rdma_detours:set_fact(Name, via, Via),
    Node = inet_rdma_detours:fact(Name, node),
    ok =
        case Via of
            none -> inet_rdma_detour_return:stop(Session);
            _ -> inet_rdma_detour_return:start(Session, detour)
        end,
    case Via of
        Before ->
            ok;
        none ->
            ok = inet_rdma_recorder:record(direct, Node, #{why => Before}),
            ?LOG_NOTICE("inet_rdma: the link to ~ts is no longer carried over ~ts", [Node, Before]);
        _ ->
            ok = inet_rdma_detours:set_fact(Name, detours, detours(Name) + 1),
            ok = inet_rdma_recorder:record(detour, Node, #{why => Via}),
            ?LOG_NOTICE(
                "inet_rdma: the link to ~ts is carried over ~ts: no address of the peer answers", [
                    Node, Via
                ]
            )
    end.

%% The message to the peer's guard: only the side that has asked for a detour knows of it.
-spec message(Via :: binary()) -> binary().
message(Via) -> <<?DETOUR, Via/binary>>.

%% A message of the peer's guard, which holds until the session has another TCP connection. One that
%% names no node is passed over. False: it is about something else.
-spec handle_message(inet_rdma_session:t(), Message :: binary()) -> boolean().
handle_message(Session, <<?DETOUR, Via/binary>>) ->
    _ = [
        begin
            ok = begun_over_a_neighbour(inet_rdma_session:role(Session), Session),
            ok = goes_over(binary:copy(Via), Session)
        end
     || inet_rdma_tcp:is_node_name(Via)
    ],
    true;
handle_message(_Session, _Message) ->
    false.

%% An acceptor takes the peer to listen at the address from which it has come. If the session's
%% first connection comes over a neighbour that is the neighbour's address, whose answers say
%% nothing of the peer.
begun_over_a_neighbour(acceptor, Session) ->
    Name = inet_rdma_session:name(Session),
    case {inet_rdma_links:peer(Name), listens(Session), inet_rdma_session:ends(Session)} of
        {#{reached := [], peer_node := PeerNode}, {Ip, _}, {ok, {_Own, {Ip, _}}}} ->
            %% The neighbour may run on the peer's host.
            case
                inet_rdma_peer_node:accepts_here(Ip, PeerNode) orelse
                    lists:keymember(Ip, 1, inet_rdma_peer_node:addresses(PeerNode))
            of
                true -> ok;
                false -> inet_rdma_detours:set_fact(Name, listens, none)
            end;
        _ ->
            ok
    end;
begun_over_a_neighbour(initiator, _Session) ->
    ok.

%% The neighbour over which the session's last TCP connection was made.
-spec via(inet_rdma_session:t()) -> Via :: binary() | none.
via(Session) -> inet_rdma_detours:fact(inet_rdma_session:name(Session), via).

%% For inet_rdma:info/1. A peer's word makes no atom.
-spec facts(inet_rdma_session:t()) ->
    #{detoured := boolean(), via := node() | undefined, detours := non_neg_integer()}.
facts(Session) ->
    Detours = detours(inet_rdma_session:name(Session)),
    case via(Session) of
        none ->
            #{detoured => false, via => undefined, detours => Detours};
        Via ->
            #{
                detoured => true,
                via =>
                    try
                        binary_to_existing_atom(Via)
                    catch
                        error:badarg -> undefined
                    end,
                detours => Detours
            }
    end.

%% How often the session's connection began to go over a neighbour, or over another one.
detours(Name) ->
    case inet_rdma_detours:fact(Name, detours) of
        none -> 0;
        Count -> Count
    end.

%% True: no queue pair is settled, the end of the connection says nothing of the peer, and the
%% direct way is tried again.
-spec is_detoured(inet_rdma_session:t()) -> boolean().
is_detoured(Session) -> via(Session) =/= none.

%% Whether a session's peer can be reached, and directly.
-spec is_usable(inet_rdma_session:t()) -> boolean().
is_usable(Session) ->
    not is_detoured(Session) andalso
        inet_rdma_port:is_carried(inet_rdma_links:standing(inet_rdma_session:name(Session))).

%% A TCP connection to the distribution listener of a session's peer.
-spec dial(inet_rdma_session:t(), TimeoutMs :: non_neg_integer()) ->
    {ok, inet_rdma_transport:t()} | {error, listens_nowhere | term()}.
dial(Session, TimeoutMs) ->
    Driver = inet_rdma_session:driver(Session),
    Options = inet_rdma_session:connect_options(Session),
    Addresses = addresses(Session),
    AMs = max(1, min(?CONNECT_MS, TimeoutMs div max(1, length(Addresses)))),
    lists:foldl(
        fun
            (_Address, {ok, _} = Connected) -> Connected;
            (Address, _Error) -> inet_rdma_transport:connect(Driver, Address, Options, AMs)
        end,
        {error, listens_nowhere},
        Addresses
    ).

%% The peer's address on the TCP connection in use comes first.
addresses(Session) ->
    case {listens_or_tells(listens(Session), Session), inet_rdma_session:ends(Session)} of
        {none, _} ->
            [];
        {{_, TcpPort} = Listens, {ok, {_Own, {Ip, _}}}} ->
            [{Ip, TcpPort} | [Listens || Listens =/= {Ip, TcpPort}]];
        {Listens, _} ->
            [Listens]
    end.

listens_or_tells(none, Session) ->
    #{peer_node := PeerNode} = inet_rdma_links:peer(inet_rdma_session:name(Session)),
    hd(inet_rdma_peer_node:addresses(PeerNode) ++ [none]);
listens_or_tells(Listens, _Session) ->
    Listens.

-spec is_request(binary()) -> boolean().
is_request(<<?MAGIC, _/binary>>) -> true;
is_request(_) -> false.

%% Said: what the proofs are about.
-spec parse(binary()) -> {ok, Name :: <<_:128>>, To :: binary(), Said :: binary()} | error.
parse(<<?MAGIC, ?VERSION, Name:16/binary, Nonce:16/binary, To/binary>>) ->
    case inet_rdma_tcp:is_node_name(To) of
        true -> {ok, Name, To, <<Name/binary, Nonce/binary, To/binary>>};
        false -> error
    end;
parse(_) ->
    error.

%% The neighbour's proof.
-spec challenge(inet_rdma_session:t(), Before :: binary()) -> Proof :: binary().
challenge(Session, Before) -> prove(Session, ["detour challenge", Before]).

%% Whether this is the asker's proof.
-spec is_proof(inet_rdma_session:t(), Proof :: binary(), Before :: binary()) -> boolean().
is_proof(Session, Proof, Before) -> verify(Session, Proof, ["detour asker", Before]).

prove(Session, Bytes) -> inet_rdma_port:prove(inet_rdma_session:port(Session), Bytes).

verify(Session, Proof, Bytes) ->
    inet_rdma_port:is_proof(inet_rdma_session:port(Session), Proof, Bytes).
