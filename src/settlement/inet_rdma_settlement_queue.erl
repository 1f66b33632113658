%% Makes a queue pair of one fabric for the settlement, which becomes a link or a stream.
%%
%% The initiator connects (connect/5). The acceptor waits for it (expect/2), and opens the queue
%% pair (open/3). The callbacks are those of a session's queue pair (inet_rdma_queue) or of a stream
%% (inet_rdma_tls_stream).
-module(inet_rdma_settlement_queue).

-export([connect/5, connect_shm/3, by_preference/2, expect/2, own_addresses/2]).
-export([open/3, open_if_there/3, close/2, drop/2, key/1, keys/3]).
-export_type([opened/0]).

-include_lib("kernel/include/logger.hrl").
-include("inet_rdma_settling.hrl").

-import(inet_rdma_settlement_message, [left/1, broken/1]).
-import(inet_rdma_text, [reason/1]).

%% Addresses of the peer's devices that are tried at most.
-define(ADDRESSES_MAX, 4).
%% A device that cannot be used fails at each settlement: a line a day.
-define(SELF_TEST_LOG_MS, 86400000).

%% tcp: of a stream.
-type fabric() :: inet_rdma_options:fabric().
%% The session's port, with the queue pair's number; none: a stream needs no port.
-type place() :: {port(), Number :: pos_integer()} | none.
-type opened() :: inet_rdma_queue:t() | inet_rdma_nif:conn().

%% The options for the queue pair.
-callback config(inet_rdma_options:config()) -> inet_rdma_options:config().
%% waiting: the outcome of the attempt is not there yet.
-callback open(
    place(),
    inet_rdma_nif:attempt(),
    Node :: binary() | none,
    inet_rdma_options:config(),
    inet_rdma_nif:protection()
) ->
    {ok, opened(), Why :: binary()} | waiting | {error, inet_rdma:reason()}.
%% Gives back what was opened.
-callback close(opened()) -> ok.

%% To the peer's listener, at one of these addresses.
-spec connect(
    #settling{}, fabric(), inet:port_number(), inet_rdma_nif:token(), Addresses :: [binary()]
) ->
    {ok, opened(), Why :: binary()} | {failed, Why :: binary()}.
connect(Settling, Fabric, Port, Token, Addresses) ->
    connect(Settling, Fabric, Port, Token, Addresses, []).

%% Whys: why the earlier addresses failed, last first.
connect(_Settling, _Fabric, _Port, _Token, [], []) ->
    {failed, <<"the peer names no address">>};
connect(_Settling, _Fabric, _Port, _Token, [], Whys) ->
    {failed, iolist_to_binary(lists:join("; ", lists:reverse(Whys)))};
connect(Settling, Fabric, Port, Token, [Address | Addresses], Whys) ->
    %% The time for one address leaves time for the others, and for the messages that follow.
    TimeoutMs = left(Settling) * 3 div 4 div (length(Addresses) + 1),
    Attempt = inet_rdma_nif:connect(
        Fabric, <<>>, {Address, Port}, Token, TimeoutMs, config(Settling, Fabric)
    ),
    case connected(TimeoutMs, Settling, Fabric, Attempt) of
        {ok, Opened, Why} ->
            {ok, Opened, Why};
        {failed, Why} ->
            connect(Settling, Fabric, Port, Token, Addresses, [Why | lists:delete(Why, Whys)])
    end.

%% To the peer's listener over shm, which has this name in the network namespace, and another one in
%% the directory.
-spec connect_shm(#settling{}, inet_rdma_nif:name(), inet_rdma_nif:token()) ->
    {ok, opened(), Why :: binary()} | {failed, Why :: binary()}.
connect_shm(#settling{reach = Reach, config = Options} = Settling, Name, Token) ->
    TimeoutMs = left(Settling) * 3 div 4,
    Config = config(Settling, shm),
    Attempt =
        case Reach of
            {directory, {ok, File}} ->
                #{shm_directory := Directory, shm_allowed_uids := Users} = Options,
                inet_rdma_nif:connect_shm_file({Directory, Users, File}, Token, TimeoutMs, Config);
            _ ->
                inet_rdma_nif:connect_shm(Name, Token, TimeoutMs, Config)
        end,
    connected(TimeoutMs, Settling, shm, Attempt).

%% The result of an attempt, which its message announces.
connected(TimeoutMs, Settling, Fabric, {ok, Attempt, Id}) ->
    receive
        {'$inet_rdma', Id, connected} ->
            case open(Settling, Fabric, Attempt) of
                {ok, Opened, Why} -> {ok, Opened, Why};
                {error, Reason} -> {failed, reason(Reason)}
            end
    after TimeoutMs ->
        ok = drop(Attempt, Id),
        {failed, <<"timed out">>}
    end;
connected(_TimeoutMs, _Settling, _Fabric, {error, Reason}) ->
    {failed, reason(Reason)}.

%% The addresses to try, of those that the peer names. The address of the connection's other end is
%% the first, because the peer is known to be reachable there.
-spec by_preference(#settling{}, [binary()]) -> [binary()].
by_preference(#settling{channel = {Module, Channel}}, Texts) ->
    case Module:ends(Channel) of
        {ok, {_Own, {Ip, _}}} ->
            Same = inet_rdma_ip:text(Ip),
            {First, Others} = lists:partition(fun(Address) -> Address =:= Same end, [
                as_ntoa(Text)
             || Text <- Texts
            ]),
            lists:sublist(First ++ Others, ?ADDRESSES_MAX);
        {error, _} ->
            throw(closed)
    end.

%% Normalises an address: inet takes forms that the native library does not.
as_ntoa(Text) ->
    {ok, Ip} = inet:parse_strict_address(binary_to_list(Text)),
    inet_rdma_ip:text(Ip).

%% A listener for the peer that has the token. Id is in the message that announces it. Over shm it
%% has a name, over the others a port.
-spec expect(#settling{}, fabric()) ->
    {ok, inet_rdma_nif:attempt(), Id :: pos_integer(), inet_rdma_nif:name() | inet:port_number(),
        inet_rdma_nif:token()}
    | {error, inet_rdma:reason()}.
expect(Settling, Fabric) ->
    Token = inet_rdma_nif:token(),
    Config = config(Settling, Fabric),
    Expecting =
        case Fabric of
            shm -> inet_rdma_nif:expect_shm(Token, left(Settling), Config);
            verbs -> inet_rdma_nif:expect(verbs, <<>>, Token, left(Settling), Config);
            tcp -> inet_rdma_nif:expect(tcp, own_address(Settling), Token, left(Settling), Config)
        end,
    case Expecting of
        {ok, Attempt, Id, Place} -> {ok, Attempt, Id, Place, Token};
        {error, Reason} -> {error, Reason}
    end.

%% The addresses at which a listener of this node can be reached. Over shm its name is enough.
-spec own_addresses(#settling{}, fabric()) -> {ok, [binary()]} | {error, Why :: binary()}.
own_addresses(_Settling, shm) ->
    {ok, []};
own_addresses(Settling, tcp) ->
    {ok, [own_address(Settling)]};
own_addresses(_Settling, verbs) ->
    case inet_rdma_nif:check_verbs() of
        ok ->
            case
                inet_rdma_nif:verbs_addresses([
                    inet_rdma_ip:text(Ip)
                 || Ip <- inet_rdma_ip:of_host()
                ])
            of
                {ok, []} -> {error, <<"no address of this host belongs to an RDMA device">>};
                {ok, Addresses} -> {ok, Addresses};
                {error, Reason} -> {error, reason(Reason)}
            end;
        {error, Reason} ->
            {error, reason(Reason)}
    end.

%% The own address to which the peer has connected.
own_address(#settling{channel = {Module, Channel}}) ->
    case Module:ends(Channel) of
        {ok, {{Ip, _}, _Peer}} -> inet_rdma_ip:text(Ip);
        {error, _} -> throw(closed)
    end.

-spec open(#settling{}, fabric(), inet_rdma_nif:attempt()) ->
    {ok, opened(), Why :: binary()} | {error, inet_rdma:reason()}.
open(Settling, Fabric, Attempt) ->
    case open_if_there(Settling, Fabric, Attempt) of
        waiting -> {error, timeout};
        Opened -> Opened
    end.

-spec open_if_there(#settling{}, fabric(), inet_rdma_nif:attempt()) ->
    {ok, opened(), Why :: binary()} | waiting | {error, inet_rdma:reason()}.
open_if_there(#settling{module = Module, node = Node, config = Config} = Settling, Fabric, Attempt) ->
    noted(
        Module:open(
            place(Settling), Attempt, Node, Module:config(Config), protection(Settling, Fabric)
        )
    ).

%% Logs once that a device of this host has failed the self-test of a queue pair. The log lines of
%% the links name the peers.
noted({error, {self_test, Device, Tried, _} = Reason} = Failed) when Device =/= peer ->
    _ =
        inet_rdma_links:is_due({Device, 0, {self_test, Tried}}, ?SELF_TEST_LOG_MS) andalso
            ?LOG_WARNING("inet_rdma: ~ts", [reason(Reason)]),
    Failed;
noted(Opened) ->
    Opened.

place(#settling{session_port = none}) -> none;
place(#settling{session_port = Port} = Settling) -> {Port, queue_number(Settling)}.

%% The number by which both sides of a session name the queue pair; the initiator chooses it.
queue_number(#settling{role = initiator, own = #{path := Number}}) -> Number;
queue_number(#settling{role = acceptor, peer = #{path := Number}}) -> Number;
queue_number(#settling{role = acceptor}) -> broken(<<"the peer gives the queue pair no number">>).

-spec close(#settling{}, opened()) -> ok.
close(#settling{module = Module}, Opened) -> Module:close(Opened).

%% Gives up an attempt, and removes its message if it has come.
-spec drop(inet_rdma_nif:attempt(), Id :: pos_integer()) -> ok.
drop(Attempt, Id) ->
    ok = inet_rdma_nif:drop_attempt(Attempt),
    receive
        {'$inet_rdma', Id, connected} -> ok
    after 0 -> ok
    end.

config(#settling{module = Module, config = Config}, Fabric) ->
    (Module:config(Config))#{fabric := Fabric}.

%% This side's key for the next queue pair, to be sent to the peer.
-spec key(#settling{}) -> none | inet_rdma_nif:key().
key(#settling{channel = {Module, Channel}}) -> inet_rdma_keys:first(Module:protocol(Channel)).

%% The next queue pair has these keys, this side's and the peer's.
-spec keys(#settling{}, Send, Receive) -> #settling{} when
    Send :: none | inet_rdma_nif:key(), Receive :: Send.
keys(Settling, Send, Receive) ->
    case inet_rdma_keys:pair(Send, Receive) of
        {ok, Pair} -> Settling#settling{keys = Pair};
        {error, Why} -> broken(Why)
    end.

protection(#settling{keys = none}, _Fabric) ->
    none;
protection(#settling{keys = Keys, config = Config} = Settling, Fabric) ->
    case inet_rdma_settlement_policy:seals(Settling, Fabric) of
        true ->
            inet_rdma_keys:protection(Keys, inet_rdma_settlement_policy:cipher(Settling), Config);
        false ->
            none
    end.
