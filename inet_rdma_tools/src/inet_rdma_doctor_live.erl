%% Facts about this machine that only the running node can tell, not the kernel's files. Texts and
%% names are binaries.
-module(inet_rdma_doctor_live).

-export([facts/0]).
%% Called by inet_rdma_bounded.
-export([shm_rendezvous/0]).
-export_type([live/0]).

-import(inet_rdma_text, [reason/1, text/2]).

%% Time for each step of a connection of this node to itself.
-define(ANSWER_MS, 5000).

%% proto_dist: why the VM does not run the carrier that its flags name. shm_directory: whether the
%% directory of the option can be used. verbs: whether there is a usable connection manager and
%% device, in words if not. left_out: the library was built without the fabric. links, flight_file:
%% of the running node.
-type live() :: #{
    config := {ok, inet_rdma_options:config()} | {error, inet_rdma_options:error()},
    not_terms := [{Key :: string(), Value :: string()}],
    proto_dist := none | {Why :: binary(), Fix :: binary()},
    tls := inet_rdma_doctor_tls:facts(),
    native := ok | {error, binary()},
    shm := ok | {error, binary()},
    shm_directory := none | ok | {error, binary()},
    verbs := ok | {error, binary()} | left_out,
    verbs_devices := [map()] | unknown,
    mptcp := off | ok | {error, binary()},
    links := [inet_rdma:info()],
    listeners := inet_rdma_doctor_links:listeners(),
    flight_file := {ok, binary()} | none,
    addresses := [{Interface :: binary(), [binary()]}],
    otp := binary(),
    schedulers := pos_integer(),
    cores := pos_integer() | undefined
}.

%% The running node. Answers also where the native library is missing.
-spec facts() -> live().
facts() ->
    {Native, Verbs, Devices} = native(load()),
    Config = inet_rdma_options:node(),
    #{
        config => Config,
        not_terms => inet_rdma_options:not_terms(),
        proto_dist => inet_rdma_proto_dist:ignored(),
        tls => inet_rdma_doctor_tls:facts(Config),
        native => Native,
        shm =>
            case Native of
                ok -> shm();
                _ -> Native
            end,
        shm_directory => shm_directory(Native, Config),
        verbs => Verbs,
        verbs_devices => Devices,
        mptcp => mptcp(Config),
        links =>
            case Native of
                ok -> inet_rdma_doctor_links:facts();
                _ -> []
            end,
        listeners => inet_rdma_doctor_links:listeners(),
        flight_file => inet_rdma_recorder:file(),
        addresses => addresses(),
        otp => list_to_binary(erlang:system_info(otp_release)),
        schedulers => erlang:system_info(schedulers_online),
        cores =>
            case erlang:system_info(logical_processors_available) of
                unknown -> undefined;
                Cores -> Cores
            end
    }.

load() ->
    case code:ensure_loaded(inet_rdma_nif) of
        {module, _} -> inet_rdma_nif:load();
        Error -> Error
    end.

native(ok) ->
    case lists:member(verbs, inet_rdma_nif:features()) andalso inet_rdma_nif:verbs_devices() of
        false -> {ok, left_out, unknown};
        {ok, Devices} -> {ok, in_words(inet_rdma_nif:check_verbs()), Devices};
        Error -> {ok, in_words(Error), unknown}
    end;
native({error, Reason}) ->
    Why = text("the native library is not loaded (~ts)", [reason(Reason)]),
    {{error, Why}, {error, Why}, unknown}.

%% Whether the kernel gives the node what the option asks for.
mptcp({ok, #{mptcp := auto}}) ->
    case inet_rdma_multipath:available() of
        ok -> ok;
        {error, not_loaded} -> {error, <<"the native library is not loaded">>};
        {error, Posix} -> {error, text("~ts", [inet:format_error(Posix)])}
    end;
mptcp(_Config) ->
    off.

in_words(ok) -> ok;
in_words({error, Reason}) -> {error, reason(Reason)}.

%% In a process of its own, so that late messages of the sockets do not reach the caller.
shm() ->
    case inet_rdma_bounded:call(?MODULE, shm_rendezvous, [], infinity) of
        {ok, Answer} -> Answer;
        {exit, Reason} -> {error, text("~tp", [Reason])}
    end.

%% Makes a connection of this node to itself, which uses all that shm needs of the system: sealed
%% memory, sockets and events.
-spec shm_rendezvous() -> ok | {error, binary()}.
shm_rendezvous() ->
    try
        {ok, Settings} = inet_rdma_socket:settings(0, [{fabric, shm}]),
        {ok, Listener} = inet_rdma_listener:listen(Settings),
        {ok, Here, HereId} = inet_rdma_connect:connect(
            {127, 0, 0, 1}, inet_rdma_listener:settings(Listener), infinity
        ),
        {ok, There, ThereId} = inet_rdma_listener:accept(
            Listener, inet_rdma_clock:deadline(?ANSWER_MS)
        ),
        ok = inet_rdma_transfer:send(Here, HereId, [<<"doctor">>]),
        {ok, <<"doctor">>} = inet_rdma_transfer:recv(There, ThereId, 6, ?ANSWER_MS),
        lists:foreach(fun inet_rdma_nif:close/1, [Here, There]),
        inet_rdma_listener:close(Listener)
    catch
        error:{badmatch, {error, Reason}} -> in_words({error, Reason})
    end.

%% A socket file is made there, and removed.
shm_directory(ok, {ok, Config}) ->
    case inet_rdma_neighbours:check(Config) of
        none -> none;
        Checked -> in_words(Checked)
    end;
shm_directory(_Native, _Config) ->
    none.

addresses() ->
    [
        {unicode:characters_to_binary(Name), [inet_rdma_ip:text(Ip) || Ip <- Ips]}
     || {Name, Ips} <- inet_rdma_ip:interfaces()
    ].
