%% The native functions, and how the library is found while the kernel boots.
%%
%% Internal: use inet_rdma. Shapes and errors stand at the functions in native/nif/src.
-module(inet_rdma_nif).

-export([listen/4, accept/2, observe/1, close_listener/1, addresses/1, check_verbs/0, verbs_devices/0]).
-export([connect/6, expect/5, stream/1, identity/0, verbs_addresses/1]).
-export([send/4, recv/4, spin/2, arm/1, arm_writer/1, disarm/1, self_polling/1, framing/1, framing/3, active/3, active_left/1]).
-export([own/2, owner/1, tick/1, finish/1, stop_reading/1, close/1, packets/1, label/2]).
-export([post_send/4, post_recv/4, cancel/2, posted/1]).
-export([statistics/1, all_statistics/0, links/0]).
-export_type([attempt/0, conn/0, listener/0, packets/0, token/0]).

-nifs([listen/4, accept/2, observe/1, close_listener/1, addresses/1, check_verbs/0, verbs_devices/0]).
-nifs([connect/6, expect/5, stream/1, identity/0, verbs_addresses/1]).
-nifs([send/4, recv/4, spin/2, arm/1, arm_writer/1, disarm/1, self_polling/1, framing/1, framing/3, active/3, active_left/1]).
-nifs([own/2, owner/1, tick/1, finish/1, stop_reading/1, close/1, packets/1, label/2]).
-nifs([post_send/4, post_recv/4, cancel/2, posted/1]).
-nifs([statistics/1, all_statistics/0, links/0]).

-on_load(on_load/0).

-type conn() :: reference().
-type listener() :: reference().
%% A queue pair in the making; it is cancelled when the last term that names it is collected.
-type attempt() :: reference().
%% 64 random bits that the two sides of a settlement know; 0: none.
-type token() :: 0..16#ffffffffffffffff.
-type end_point() :: none | {Address :: binary(), inet:port_number()}.
-type packets() :: [binary() | [binary()] | {non_neg_integer(), [binary()]}].

-define(LIBRARY, "inet_rdma_nif").

%% Runs while the kernel boots, in an embedded release even before there is a code server: neither `file` nor
%% `application` nor `code` may be needed. The directories that modules are loaded from are known to the primitive
%% loader at any time; those added later (by Mix, rebar3 or -pa in a script) only to the code server.
on_load() ->
    case find(primitive_path()) of
        {ok, Library} ->
            erlang:load_nif(Library, 0);
        error ->
            case find(code_path()) of
                {ok, Library} -> erlang:load_nif(Library, 0);
                error -> {error, {not_found, "priv/" ?LIBRARY ".so is in no application directory of the code path: "
                                             "build it with make build, mix compile or rebar3 compile"}}
            end
    end.

primitive_path() ->
    {ok, Path} = erl_prim_loader:get_path(),
    Path.

code_path() ->
    case whereis(code_server) of
        undefined -> [];
        _ -> code:get_path()
    end.

find([Dir | Rest]) ->
    %% Only the directory that this module itself is in counts: its library is built with it.
    Beam = Dir ++ "/" ++ ?MODULE_STRING ++ ".beam",
    Library = parent(Dir) ++ "priv/" ++ ?LIBRARY,
    case is_file(Beam) andalso is_file(Library ++ ".so") of
        true -> {ok, Library};
        false -> find(Rest)
    end;
find([]) ->
    error.

%% "x/ebin" -> "x/", "ebin" -> "", "." -> "../"
parent(Dir) ->
    case lists:reverse(Dir) of
        "/" ++ Reversed -> parent(lists:reverse(Reversed));
        "." -> "../";
        Reversed -> lists:reverse(lists:dropwhile(fun(Char) -> Char =/= $/ end, Reversed))
    end.

is_file(Name) ->
    case erl_prim_loader:read_file_info(Name) of
        {ok, _} -> true;
        error -> false
    end.

-spec listen(Address :: binary(), inet:port_number(), inet:port_number(), map()) ->
          {ok, listener(), Id :: pos_integer(), inet:port_number(), Over :: binary()} | {error, term()}.
listen(_Address, _First, _Last, _Config) -> not_loaded().

-spec accept(listener(), map()) -> {ok, conn(), Id :: pos_integer()} | empty | {error, term()}.
accept(_Listener, _Config) -> not_loaded().

-spec observe(listener()) -> ok.
observe(_Listener) -> not_loaded().

-spec close_listener(listener()) -> ok.
close_listener(_Listener) -> not_loaded().

-spec connect(auto | shm | verbs, Address :: binary(), inet:port_number(), token(), TimeoutMs :: non_neg_integer(),
              map()) -> {ok, attempt(), Id :: pos_integer()} | {error, term()}.
connect(_Fabric, _Address, _Port, _Token, _TimeoutMs, _Config) -> not_loaded().

-spec expect(shm | verbs, Address :: binary(), token(), TimeoutMs :: non_neg_integer(), map()) ->
          {ok, attempt(), Id :: pos_integer(), inet:port_number()} | {error, term()}.
expect(_Fabric, _Address, _Token, _TimeoutMs, _Config) -> not_loaded().

-spec stream(attempt()) -> {ok, conn()} | {error, term()} | waiting.
stream(_Attempt) -> not_loaded().

-spec identity() -> #{boot := binary(), netns := non_neg_integer(), user := non_neg_integer(),
                      instance := non_neg_integer()}.
identity() -> not_loaded().

-spec verbs_addresses([Address :: binary()]) -> {ok, [binary()]} | {error, binary()}.
verbs_addresses(_Addresses) -> not_loaded().

-spec addresses(conn()) -> {Fabric :: binary(), Local :: end_point(), Peer :: end_point()} | closed.
addresses(_Conn) -> not_loaded().

-spec check_verbs() -> ok | {error, binary()}.
check_verbs() -> not_loaded().

-spec verbs_devices() -> {ok, [map()]} | {error, binary()}.
verbs_devices() -> not_loaded().

-spec send(conn(), packets(), Offset :: non_neg_integer(), MaxBytes :: pos_integer()) ->
          ok | {more | blocked, packets(), non_neg_integer()} | {error, term()}.
send(_Conn, _Packets, _Offset, _MaxBytes) -> not_loaded().

-spec recv(conn(), MaxBytes :: pos_integer(), MaxPackets :: pos_integer(), Exact :: non_neg_integer()) ->
          {ok | more, [binary()]} | empty | {error, term(), [binary()]}.
recv(_Conn, _MaxBytes, _MaxPackets, _Exact) -> not_loaded().

-spec spin(conn(), Microseconds :: non_neg_integer()) -> boolean().
spin(_Conn, _Microseconds) -> not_loaded().

-spec arm(conn()) -> boolean().
arm(_Conn) -> not_loaded().

-spec arm_writer(conn()) -> boolean().
arm_writer(_Conn) -> not_loaded().

-spec disarm(conn()) -> ok.
disarm(_Conn) -> not_loaded().

-spec self_polling(conn()) -> ok.
self_polling(_Conn) -> not_loaded().

-spec framing(conn(), raw | length4 | distribution, PacketMaxBytes :: pos_integer()) ->
          ok | {error, einval | closed}.
framing(_Conn, _Framing, _PacketMaxBytes) -> not_loaded().

-spec framing(conn()) -> raw | length4 | distribution.
framing(_Conn) -> not_loaded().

-spec active(conn(), term(), passive | once | infinity | non_neg_integer()) -> ok | {error, einval}.
active(_Conn, _Socket, _Count) -> not_loaded().

-spec active_left(conn()) -> passive | once | infinity | pos_integer().
active_left(_Conn) -> not_loaded().

-spec own(conn(), pid()) -> ok.
own(_Conn, _Pid) -> not_loaded().

-spec owner(conn()) -> pid() | closed.
owner(_Conn) -> not_loaded().

-spec tick(conn()) -> ok | {error, term()}.
tick(_Conn) -> not_loaded().

-spec finish(conn()) -> ok | {error, term()}.
finish(_Conn) -> not_loaded().

-spec stop_reading(conn()) -> ok.
stop_reading(_Conn) -> not_loaded().

-spec close(conn()) -> ok.
close(_Conn) -> not_loaded().

-spec packets(conn()) -> {Received :: non_neg_integer(), Sent :: non_neg_integer()} | closed.
packets(_Conn) -> not_loaded().

-spec label(conn(), binary()) -> ok.
label(_Conn, _Node) -> not_loaded().

-spec post_send(conn(), term(), reference(), [binary()]) -> ok | {error, term()}.
post_send(_Conn, _Socket, _Ref, _Binaries) -> not_loaded().

-spec post_recv(conn(), term(), reference(), non_neg_integer()) -> ok | {error, term()}.
post_recv(_Conn, _Socket, _Ref, _Length) -> not_loaded().

-spec cancel(conn(), reference()) -> ok | {error, too_late | closed}.
cancel(_Conn, _Ref) -> not_loaded().

-spec posted(conn()) -> {Sends :: non_neg_integer(), Bytes :: non_neg_integer(), Receives :: non_neg_integer()} | closed.
posted(_Conn) -> not_loaded().

-spec statistics(conn()) -> map() | closed.
statistics(_Conn) -> not_loaded().

-spec all_statistics() -> [map()].
all_statistics() -> not_loaded().

-spec links() -> non_neg_integer().
links() -> not_loaded().

not_loaded() ->
    erlang:nif_error({not_loaded, ?MODULE}).
