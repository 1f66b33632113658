%% The native functions, and how the library is found while the kernel boots.
%%
%% Internal: use inet_rdma. Shapes and errors stand at the functions in native/nif/src.
-module(inet_rdma_nif).

%% The functions of the native library.
-define(NATIVE, [
    listen/5,
    accept/2,
    stop_accepting/1,
    close_listener/1,
    log_limit/0,
    log_admits/1,
    addresses/1,
    check_verbs/0,
    verbs_devices/0,
    connect/6,
    expect_shm/3,
    expect/5,
    notify/1,
    drop_attempt/1,
    stream/2,
    shm_file/2,
    find_shm_file/1,
    check_shm_directory/2,
    remove_shm_file/0,
    connect_shm/4,
    connect_shm_file/4,
    witness_name/0,
    find_witness/1,
    refuse_at_crash/1,
    keep_at_crash/1,
    prove_cookie/2,
    is_cookie_proof/3,
    clocks/0,
    machine_clocks/0,
    identity/0,
    token/0,
    nonce/0,
    is_local/1,
    verbs_addresses/1,
    send/3,
    leave/3,
    recv/2,
    arm/1,
    arm_writer/1,
    disarm/1,
    framing/3,
    active/3,
    active_left/1,
    make_passive/1,
    post_send/4,
    post_recv/4,
    cancel/2,
    posted/1,
    own/2,
    owner/1,
    set_options/2,
    options/1,
    finish/1,
    stop_reading/1,
    close/1,
    statistics/1,
    all_statistics/0,
    link/4,
    link_end/1,
    release_link/1,
    link_numbers/0,
    take_back/1,
    ended_attribution/1,
    can_decompress/0,
    multipath_listener/1,
    make_multipath/2,
    cipher/0,
    tls_owner/1,
    end_stream/2,
    flight_start/3,
    flight_record/6,
    flight_recent/2,
    flight_file/0,
    taken/1,
    option_values/0,
    reason_shapes/0,
    has_driver/0,
    features/0
]).

-export(?NATIVE).
-export([load/0, is_loaded/0, driver/0]).
-export_type([
    attempt/0,
    cipher/0,
    conn/0,
    tls_owner/0,
    key/0,
    protection/0,
    framing/0,
    listener/0,
    link/0,
    packets/0
]).
-export_type([log_limit/0, name/0, token/0]).

-nifs(?NATIVE).

-type conn() :: reference().
-type listener() :: reference().
%% A bound on the log lines that the peers of a listener cause: 10 in each minute.
-type log_limit() :: reference().
%% A queue pair in the making. drop_attempt/1 cancels it, as does the collection of the last term
%% that names it.
-type attempt() :: reference().
%% 64 random bits that the two sides of a settlement know; 0: none.
-type token() :: 0..16#ffffffffffffffff.
%% The name of a listener over shm: 42 bytes, of which 128 bits are random.
-type name() :: binary().
-type link() :: reference().
%% The owner of the TLS connection in which a stream began. It does not keep the stream open, and ends the
%% stream when the last term that names the owner is collected.
-type tls_owner() :: reference().
-type cipher() :: aes_256_gcm | chacha20_poly1305.
-type key() :: <<_:256>>.
%% send_key is the peer's receive_key, and the other way round; the two differ. When rekey_bytes
%% bytes, or 2^30 records, are sealed under one key, or it is rekey_seconds old (0: no limit), this
%% side goes on to the next key.
-type protection() ::
    none
    | #{
        cipher := cipher(),
        send_key := key(),
        receive_key := key(),
        rekey_bytes => pos_integer(),
        rekey_seconds => non_neg_integer()
    }.
-type end_point() :: none | {Address :: binary(), inet:port_number()}.
%% Any term, which inet_rdma_socket keeps beside the connection.
-type options() :: term().
%% A line longer than BytesMax comes in pieces of that size.
-type framing() :: raw | length1 | length2 | length4 | {line, BytesMax :: pos_integer()}.
-type packets() :: [binary() | [binary()] | {non_neg_integer(), [binary()]}].

-define(LIBRARY, "inet_rdma_nif").
%% Loads of the library while others load the module again and again.
-define(LOADS_MAX, 10).

%% Loads the library, unless it is loaded. Each user of the library calls this first, also while the
%% kernel boots.
-spec load() -> ok | {error, inet_rdma:reason()}.
load() ->
    case try_to_load() of
        {error, {old_code, _}} -> ?MODULE:load();
        Loaded -> Loaded
    end.

%% old_code: this module was loaded again meanwhile, and the new one has to load the library.
try_to_load() ->
    case is_loaded() orelse inet_rdma_library:find() of
        true -> ok;
        {ok, Library} -> load_whole(Library);
        Error -> Error
    end.

load_whole(Library) ->
    case inet_rdma_library:check(Library) of
        ok -> load(Library);
        Error -> Error
    end.

%% The native functions and the driver are in one library, and the driver must find that library
%% mapped: otherwise a second copy, with connections of its own, would be loaded.
load(Library) -> load(Library, ?LOADS_MAX).

load(Library, LoadsLeft) ->
    Functions =
        module_info(exports) --
            [{load, 0}, {is_loaded, 0}, {driver, 0}, {module_info, 0}, {module_info, 1}],
    case erlang:load_nif(Library, inet_rdma_interface:all(Functions)) of
        ok ->
            load_driver(filename:dirname(Library));
        {error, {reload, _}} ->
            load_driver(filename:dirname(Library));
        {error, {upgrade, _} = Reason} ->
            %% This module was loaded again, and the library cannot serve two of its kind (rustler
            %% has no upgrade callback). The old one goes as soon as no process is in it. Links do
            %% not need it; sockets of inet_rdma that were opened with it are lost. The process in
            %% it may be this one, if the module was loaded again once more.
            IsGone = code:soft_purge(?MODULE) orelse erlang:check_process_code(self(), ?MODULE),
            case IsGone andalso LoadsLeft > 1 of
                true -> load(Library, LoadsLeft - 1);
                false -> failed(Reason)
            end;
        {error, Reason} ->
            failed(Reason)
    end.

%% load: the library has another interface. bad_lib with these words: it has functions that this
%% module lacks.
failed({load, _}) -> inet_rdma_library:of_another_version();
failed({bad_lib, "Function not " ++ _}) -> inet_rdma_library:of_another_version();
failed({Reason, Text}) -> {error, {Reason, unicode:characters_to_binary(Text)}}.

%% The first port keeps the driver in memory for good: the library's threads run without any port,
%% too. The driver of a copy of the library that was loaded from another path is permanent as well:
%% its ports would not find the connections of this copy, and nothing would keep this copy in
%% memory.
load_driver(Directory) ->
    case erl_ddll:try_load(Directory, ?LIBRARY, []) of
        {ok, _} ->
            Port = open_port({spawn_driver, ?LIBRARY}, []),
            true = port_close(Port),
            check_driver();
        {error, permanent} ->
            check_driver();
        {error, Reason} ->
            {error, {driver, unicode:characters_to_binary(erl_ddll:format_error(Reason))}}
    end.

check_driver() ->
    case is_loaded() of
        true ->
            ok;
        false ->
            Why =
                <<"the VM has the driver of a library that it has loaded from another path: restart the node">>,
            {error, {driver, Why}}
    end.

%% Native functions and driver, of one library.
-spec is_loaded() -> boolean().
is_loaded() ->
    try
        has_driver()
    catch
        error:{not_loaded, _} -> false
    end.

%% The driver's name, for open_port/2.
-spec driver() -> string().
driver() -> ?LIBRARY.

-spec listen(Address :: binary(), inet:port_number(), inet:port_number(), map(), Logger :: pid()) ->
    {ok, listener(), Id :: pos_integer(), inet:port_number(), Over :: binary()}
    | {error, inet_rdma:reason()}.
listen(Address, First, Last, Config, Logger) ->
    late(?FUNCTION_NAME, [Address, First, Last, Config, Logger]).

-spec accept(listener(), map()) ->
    {ok, conn(), Id :: pos_integer()} | empty | {error, inet_rdma:reason()}.
accept(Listener, Config) -> late(?FUNCTION_NAME, [Listener, Config]).

-spec stop_accepting(listener()) -> ok.
stop_accepting(Listener) -> late(?FUNCTION_NAME, [Listener]).

-spec close_listener(listener()) -> ok.
close_listener(Listener) -> late(?FUNCTION_NAME, [Listener]).

-spec log_limit() -> log_limit().
log_limit() -> late(?FUNCTION_NAME, []).

-spec log_admits(log_limit()) -> LeftOut :: non_neg_integer() | none.
log_admits(Limit) -> late(?FUNCTION_NAME, [Limit]).

-spec connect(
    auto | inet_rdma_options:fabric(),
    From :: binary(),
    {Address :: binary(), inet:port_number()},
    token(),
    TimeoutMs :: non_neg_integer(),
    map()
) ->
    {ok, attempt(), Id :: pos_integer()} | {error, inet_rdma:reason()}.
connect(Fabric, From, To, Token, TimeoutMs, Config) ->
    late(?FUNCTION_NAME, [Fabric, From, To, Token, TimeoutMs, Config]).

-spec expect_shm(token(), TimeoutMs :: non_neg_integer(), map()) ->
    {ok, attempt(), Id :: pos_integer(), name()} | {error, inet_rdma:reason()}.
expect_shm(Token, TimeoutMs, Config) -> late(?FUNCTION_NAME, [Token, TimeoutMs, Config]).

-spec connect_shm(name(), token(), TimeoutMs :: non_neg_integer(), map()) ->
    {ok, attempt(), Id :: pos_integer()} | {error, inet_rdma:reason()}.
connect_shm(Name, Token, TimeoutMs, Config) ->
    late(?FUNCTION_NAME, [Name, Token, TimeoutMs, Config]).

%% The name of this VM in its network namespace. The VM accepts connections there until it ends or
%% crashes.
-spec witness_name() -> {ok, name()} | {error, inet_rdma:reason()}.
witness_name() -> late(?FUNCTION_NAME, []).

%% The process of this network namespace that has the name. pid 0: of another process-id namespace,
%% or not known; uid 16#ffffffff: not known. einval: no VM has such a name.
-spec find_witness(name() | binary()) ->
    {present, #{pid := non_neg_integer(), uid := non_neg_integer()}}
    | absent
    | {error, inet_rdma:reason()}.
find_witness(Name) -> late(?FUNCTION_NAME, [Name]).

%% A listening socket of another part of the VM, by its descriptor, refuses connections from a crash
%% on. keep_at_crash/1 takes that back, before the socket is closed.
-spec refuse_at_crash(Descriptor :: non_neg_integer()) -> ok.
refuse_at_crash(Descriptor) -> late(?FUNCTION_NAME, [Descriptor]).

-spec keep_at_crash(Descriptor :: non_neg_integer()) -> ok.
keep_at_crash(Descriptor) -> late(?FUNCTION_NAME, [Descriptor]).

-spec shm_file(Directory :: binary(), Users :: [non_neg_integer()]) ->
    {ok, name()} | {error, inet_rdma:reason()}.
shm_file(Directory, Users) -> late(?FUNCTION_NAME, [Directory, Users]).

%% Whether the directory has something of this name.
-spec find_shm_file({Directory :: binary(), Users :: [non_neg_integer()], name()}) -> boolean().
find_shm_file(File) -> late(?FUNCTION_NAME, [File]).

-spec check_shm_directory(Directory :: binary(), Users :: [non_neg_integer()]) ->
    ok | {error, inet_rdma:reason()}.
check_shm_directory(Directory, Users) -> late(?FUNCTION_NAME, [Directory, Users]).

-spec remove_shm_file() -> ok.
remove_shm_file() -> late(?FUNCTION_NAME, []).

-spec connect_shm_file(
    {Directory :: binary(), Users :: [non_neg_integer()], Name :: binary()},
    token(),
    TimeoutMs :: non_neg_integer(),
    map()
) ->
    {ok, attempt(), Id :: pos_integer()} | {error, inet_rdma:reason()}.
connect_shm_file(File, Token, TimeoutMs, Config) ->
    late(?FUNCTION_NAME, [File, Token, TimeoutMs, Config]).

-spec expect(verbs | tcp, Address :: binary(), token(), TimeoutMs :: non_neg_integer(), map()) ->
    {ok, attempt(), Id :: pos_integer(), inet:port_number()} | {error, inet_rdma:reason()}.
expect(Fabric, Address, Token, TimeoutMs, Config) ->
    late(?FUNCTION_NAME, [Fabric, Address, Token, TimeoutMs, Config]).

-spec notify(attempt()) -> ok.
notify(Attempt) -> late(?FUNCTION_NAME, [Attempt]).

-spec drop_attempt(attempt()) -> ok.
drop_attempt(Attempt) -> late(?FUNCTION_NAME, [Attempt]).

-spec stream(attempt(), protection()) -> {ok, conn()} | {error, inet_rdma:reason()} | waiting.
stream(Attempt, Protection) -> late(?FUNCTION_NAME, [Attempt, Protection]).

-spec identity() ->
    #{
        boot := binary(),
        netns := non_neg_integer(),
        user := non_neg_integer(),
        userns := non_neg_integer(),
        instance := non_neg_integer()
    }.
identity() -> late(?FUNCTION_NAME, []).

%% In milliseconds.
-spec clocks() -> #{monotonic | boottime | realtime := integer()}.
clocks() -> late(?FUNCTION_NAME, []).

%% In milliseconds. hardware: 0 if there is none, -1 if it cannot be read. May wait for a dirty
%% scheduler.
-spec machine_clocks() -> #{boottime | realtime | hardware := integer()}.
machine_clocks() -> late(?FUNCTION_NAME, []).

-spec token() -> token().
token() -> late(?FUNCTION_NAME, []).

%% 16 random bytes, which a restored snapshot does not give again.
-spec nonce() -> <<_:128>>.
nonce() -> late(?FUNCTION_NAME, []).

%% The proof, for these bytes alone, that this node knows the cookie: HMAC-SHA256 (RFC 2104) under a
%% key made of it.
-spec prove_cookie(Cookie :: binary(), iodata()) -> Proof :: <<_:256>>.
prove_cookie(Cookie, Bytes) -> late(?FUNCTION_NAME, [Cookie, Bytes]).

-spec is_cookie_proof(Cookie :: binary(), iodata(), Proof :: binary()) -> boolean().
is_cookie_proof(Cookie, Bytes, Proof) -> late(?FUNCTION_NAME, [Cookie, Bytes, Proof]).

-spec is_local(Address :: binary()) -> boolean().
is_local(Address) -> late(?FUNCTION_NAME, [Address]).

-spec verbs_addresses([binary()]) -> {ok, [binary()]} | {error, inet_rdma:reason()}.
verbs_addresses(Addresses) -> late(?FUNCTION_NAME, [Addresses]).

-spec addresses(conn()) -> {Fabric :: binary(), Local :: end_point(), Peer :: end_point()} | closed.
addresses(Conn) -> late(?FUNCTION_NAME, [Conn]).

-spec check_verbs() -> ok | {error, inet_rdma:reason()}.
check_verbs() -> late(?FUNCTION_NAME, []).

-spec verbs_devices() -> {ok, [map()]} | {error, inet_rdma:reason()}.
verbs_devices() -> late(?FUNCTION_NAME, []).

-spec send(conn(), packets(), Offset :: non_neg_integer()) ->
    ok | {more | blocked, packets(), non_neg_integer()} | {error, inet_rdma:reason()}.
send(Conn, Packets, Offset) -> late(?FUNCTION_NAME, [Conn, Packets, Offset]).

-spec recv(conn(), Exact :: non_neg_integer()) ->
    {ok | more, [binary()]} | empty | {error, inet_rdma:reason(), [binary()]}.
recv(Conn, Exact) -> late(?FUNCTION_NAME, [Conn, Exact]).

-spec leave(conn(), [binary()], Sent :: non_neg_integer()) -> ok.
leave(Conn, Binaries, Sent) -> late(?FUNCTION_NAME, [Conn, Binaries, Sent]).

-spec arm(conn()) -> boolean().
arm(Conn) -> late(?FUNCTION_NAME, [Conn]).

-spec arm_writer(conn()) -> boolean().
arm_writer(Conn) -> late(?FUNCTION_NAME, [Conn]).

-spec disarm(conn()) -> ok.
disarm(Conn) -> late(?FUNCTION_NAME, [Conn]).

-spec framing(conn(), framing(), PacketMaxBytes :: pos_integer()) -> ok | {error, einval | closed}.
framing(Conn, Framing, PacketMaxBytes) -> late(?FUNCTION_NAME, [Conn, Framing, PacketMaxBytes]).

-spec active(conn(), term(), passive | once | infinity | -32768..32767) ->
    ok | {error, einval | closed}.
active(Conn, Socket, Count) -> late(?FUNCTION_NAME, [Conn, Socket, Count]).

-spec active_left(conn()) -> passive | once | infinity | pos_integer().
active_left(Conn) -> late(?FUNCTION_NAME, [Conn]).

-spec make_passive(conn()) -> passive | once | infinity | pos_integer().
make_passive(Conn) -> late(?FUNCTION_NAME, [Conn]).

-spec own(conn(), pid()) -> ok | {error, badarg | closed}.
own(Conn, Pid) -> late(?FUNCTION_NAME, [Conn, Pid]).

-spec owner(conn()) -> pid() | closed.
owner(Conn) -> late(?FUNCTION_NAME, [Conn]).

-spec set_options(conn(), options()) -> ok.
set_options(Conn, Options) -> late(?FUNCTION_NAME, [Conn, Options]).

-spec options(conn()) -> options() | closed.
options(Conn) -> late(?FUNCTION_NAME, [Conn]).

-spec finish(conn()) -> ok | {error, inet_rdma:reason()}.
finish(Conn) -> late(?FUNCTION_NAME, [Conn]).

-spec stop_reading(conn()) -> ok.
stop_reading(Conn) -> late(?FUNCTION_NAME, [Conn]).

-spec close(conn()) -> ok.
close(Conn) -> late(?FUNCTION_NAME, [Conn]).

-spec post_send(conn(), term(), reference(), [binary()]) -> ok | {error, inet_rdma:reason()}.
post_send(Conn, Socket, Ref, Binaries) -> late(?FUNCTION_NAME, [Conn, Socket, Ref, Binaries]).

-spec post_recv(conn(), term(), reference(), non_neg_integer()) -> ok | {error, inet_rdma:reason()}.
post_recv(Conn, Socket, Ref, Length) -> late(?FUNCTION_NAME, [Conn, Socket, Ref, Length]).

-spec cancel(conn(), reference()) -> ok | {error, too_late | closed}.
cancel(Conn, Ref) -> late(?FUNCTION_NAME, [Conn, Ref]).

-spec posted(conn()) ->
    {Sends :: non_neg_integer(), Bytes :: non_neg_integer(), Receives :: non_neg_integer()}
    | closed.
posted(Conn) -> late(?FUNCTION_NAME, [Conn]).

-spec statistics(conn()) -> map() | closed.
statistics(Conn) -> late(?FUNCTION_NAME, [Conn]).

-spec all_statistics() -> [map()].
all_statistics() -> late(?FUNCTION_NAME, []).

-spec link_numbers() -> [{counts | sealing | compression | round_trips, [atom()]}].
link_numbers() -> late(?FUNCTION_NAME, []).

-spec link(attempt(), Node :: binary(), map(), protection()) ->
    {ok, link(), Id :: pos_integer(), Fabric :: binary(), Why :: binary()}
    | waiting
    | {error, inet_rdma:reason()}.
link(Attempt, Node, Config, Protection) ->
    late(?FUNCTION_NAME, [Attempt, Node, Config, Protection]).

-spec cipher() -> cipher().
cipher() -> late(?FUNCTION_NAME, []).

-spec can_decompress() -> boolean().
can_decompress() -> late(?FUNCTION_NAME, []).

-spec tls_owner(conn()) -> {ok, tls_owner(), Id :: pos_integer()} | {error, closed}.
tls_owner(Conn) -> late(?FUNCTION_NAME, [Conn]).

-spec end_stream(tls_owner(), tls_gone | tls_bytes) -> ok.
end_stream(Owner, Reason) -> late(?FUNCTION_NAME, [Owner, Reason]).

-spec link_end(link()) -> up | inet_rdma:reason().
link_end(Link) -> late(?FUNCTION_NAME, [Link]).

-spec release_link(link()) -> ok.
release_link(Link) -> late(?FUNCTION_NAME, [Link]).

-spec take_back(Socket :: non_neg_integer()) -> ok.
take_back(Socket) -> late(?FUNCTION_NAME, [Socket]).

%% Session: its name.
-spec ended_attribution(Session :: <<_:128>>) -> none | binary().
ended_attribution(Session) -> late(?FUNCTION_NAME, [Session]).

%% The callers give take_back/1 the first one, and own the inet port of the second one.
-spec multipath_listener(IsV6 :: boolean()) ->
    {ok, Socket :: non_neg_integer()} | {error, inet:posix()}.
multipath_listener(IsV6) -> late(?FUNCTION_NAME, [IsV6]).

-spec make_multipath(Socket :: non_neg_integer(), IsV6 :: boolean()) -> ok | {error, inet:posix()}.
make_multipath(Socket, IsV6) -> late(?FUNCTION_NAME, [Socket, IsV6]).

-spec features() -> [verbs].
features() -> late(?FUNCTION_NAME, []).

%% The flight recorder of this VM (inet_rdma_recorder).
-spec flight_start(Directories :: [binary()], Node :: binary(), Bytes :: pos_integer()) ->
    ok | {error, Why :: binary()}.
flight_start(Directories, Node, Bytes) -> late(?FUNCTION_NAME, [Directories, Node, Bytes]).

-spec flight_record(
    Node :: binary(),
    Kind :: binary(),
    Path :: binary(),
    Cause :: binary(),
    Words :: binary(),
    {
        IsTick :: boolean(),
        Link :: non_neg_integer(),
        DurationNs :: non_neg_integer(),
        Amount :: non_neg_integer()
    }
) ->
    ok | {failed, Why :: binary()} | {written, Failures :: pos_integer()}.
flight_record(Node, Kind, Path, Cause, Words, Measured) ->
    late(?FUNCTION_NAME, [Node, Kind, Path, Cause, Words, Measured]).

-spec flight_file() -> Path :: binary() | none.
flight_file() -> late(?FUNCTION_NAME, []).

-spec flight_recent(Node :: binary(), Most :: non_neg_integer()) -> [Slot :: binary()].
flight_recent(Node, Most) -> late(?FUNCTION_NAME, [Node, Most]).

-spec taken(map()) -> map().
taken(Config) -> late(?FUNCTION_NAME, [Config]).

-spec option_values() -> [{Option :: atom(), [atom()]}].
option_values() -> late(?FUNCTION_NAME, []).

-spec reason_shapes() -> [{Group :: atom(), [{Name :: atom(), Fields :: non_neg_integer()}]}].
reason_shapes() -> late(?FUNCTION_NAME, []).

-spec has_driver() -> boolean().
has_driver() -> erlang:nif_error({not_loaded, ?MODULE}).

%% The library is not loaded. A module that is loaded again also begins without it.
late(Function, Arguments) ->
    case try_to_load() of
        ok ->
            %% Without this check a function that the library lacks would call itself for ever.
            case lists:member({Function, length(Arguments)}, ?MODULE:module_info(nifs)) of
                true -> apply(?MODULE, Function, Arguments);
                false -> erlang:nif_error({not_in_the_library, Function})
            end;
        {error, {old_code, _}} ->
            apply(?MODULE, Function, Arguments);
        {error, Reason} ->
            erlang:nif_error({not_loaded, Reason})
    end.
