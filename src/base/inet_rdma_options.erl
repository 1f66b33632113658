%% The options: one list, one place where they are checked.
%%
%% They come from the defaults here, the environment of the application inet_rdma, the command line
%% (-inet_rdma key value) and the call (connect and listen options); a later source overrides an
%% earlier one. The error of an unknown key or a bad value names it. docs/OPTIONS.md has each
%% option's meaning for its users.
-module(inet_rdma_options).

-export([node/0, merge/2, values/2, list/0, of_guard/1, fabrics/1, not_terms/0, format_error/1]).
-export_type([config/0, error/0, fabric/0, link_fabric/0]).

-type config() :: #{atom() => term()}.
%% not_loaded: the options of a configuration file cannot be read.
-type error() ::
    {unknown_option, term()}
    | {bad_option, atom(), term(), Expected :: string()}
    | {not_loaded, term()}.
%% zero_or: also 0, which has a meaning of its own. directory: an absolute path as a string or a
%% binary, or default. shared_directory: none, or an absolute path, kept as a binary. {users, Max}:
%% at most Max user ids. congestion: default, or a congestion control that the kernel gives this
%% process, as a binary.
-type type() ::
    {integer | zero_or, Min :: integer(), Max :: integer(), Unit :: string()}
    | {one_of, [atom()]}
    | directory
    | shared_directory
    | {users, Max :: pos_integer()}
    | congestion.

%% Less than the 7 s that net_kernel gives a link (the kernel parameter net_setuptime): the link's
%% supervisor can still say why there is no link.
-define(LOAD_MS, 5000).

%% The checked options, kept for the links that follow: to read and check all options takes 50 us,
%% as long as everything else that a link does before its first message. The command line never
%% changes. The environment may change, and the list of options when this module is loaded again.
-define(CHECKED, {?MODULE, checked}).
-define(HAS_FILE, {?MODULE, has_file}).
%% PATH_MAX of Linux, less the zero after it.
-define(PATH_BYTES_MAX, 4095).
%% 2^32 - 1 stands for no user.
-define(USER_MAX, 16#fffffffe).

-type link_fabric() :: shm | verbs.
-type fabric() :: link_fabric() | tcp.

%% The fabrics that a link can move to, or that a stream can have, in the order in which they are
%% tried.
-spec fabrics(link | stream) -> [fabric()].
fabrics(link) -> [shm, verbs];
fabrics(stream) -> fabrics(link) ++ [tcp].

%% Each option: key, reader, type, default. The native library gets all options, and reads those of
%% the reader native: the fields of Config in native/nif/src/config.rs, which errors_SUITE compares.
%% The guard of a link keeps the options of the reader guard (of_guard/1).
-spec list() -> [{atom(), native | carrier | guard, type(), term()}].
list() ->
    [
        {fabric, native, {one_of, [auto | fabrics(stream)]}, auto},
        {required, carrier, {one_of, [true, false]}, false},
        {security, carrier, {one_of, [none, tls]}, none},
        {encrypt_shm, carrier, {one_of, [true, false]}, false},
        {rekey_bytes, carrier, {integer, 65536, 1 bsl 37, "bytes"}, 1 bsl 36},
        {rekey_seconds, carrier, {integer, 0, 31536000, "seconds"}, 3600},
        {compress, carrier, {one_of, [true, false, auto]}, false},
        {congestion, carrier, congestion, default},
        {mptcp, carrier, {one_of, [auto, off]}, off},
        {move, guard, {one_of, [eager, earned, never]}, earned},
        {move_back_ms, guard, {integer, 0, 86400000, "milliseconds"}, 300000},
        {survive_ms, guard, {integer, 0, 3600000, "milliseconds"}, 15000},
        {refused_ms, guard, {integer, 0, 3600000, "milliseconds"}, 2000},
        %% TCP sends a lost packet again after 200 ms, and once more after 400 ms: with a smaller
        %% value two lost packets would count as a dead host.
        {suspect_after_ms, guard, {zero_or, 500, 3600000, "milliseconds"}, 1000},
        {detour, carrier, {one_of, [true, false, connect]}, true},
        {attribution, carrier, {one_of, [on, off]}, on},
        {attribution_names, carrier, {one_of, [on, off]}, off},
        {fallback_retry_ms, guard, {integer, 0, 86400000, "milliseconds"}, 60000},
        {shm_directory, carrier, shared_directory, none},
        {shm_allowed_uids, carrier, {users, 64}, []},
        {ring_bytes, native, {integer, 4096, 1 bsl 30, "bytes"}, 512 * 1024},
        {receive_slots, native, {integer, 16, 32768, "messages"}, 256},
        {pinned_max_bytes, native, {integer, 0, 1 bsl 60, "bytes"}, 0},
        {packet_max_bytes, native, {integer, 65536, 2147483647, "bytes"}, 128 bsl 20},
        {window_max_bytes, carrier, {integer, 4 bsl 20, 1 bsl 30, "bytes"}, 64 bsl 20},
        {node_window_max_bytes, carrier, {integer, 0, 1 bsl 40, "bytes"}, 512 bsl 20},
        {polling, native, {one_of, [adaptive, event, busy]}, adaptive},
        {spin_us, native, {integer, 0, 500, "microseconds"}, 100},
        {polling_threads, native, {integer, 1, 64, "threads"}, 1},
        {connect_timeout_ms, native, {integer, 1, 3600000, "milliseconds"}, 5000},
        {ack_timeout_ms, native, {integer, 0, 60000, "milliseconds"}, 0},
        {type_of_service, native, {integer, 0, 255, "bits of ip(7)"}, 0},
        {flight_recorder, carrier, {one_of, [true, false]}, true},
        {flight_bytes, carrier, {integer, 65536, 1 bsl 26, "bytes"}, 1 bsl 20},
        {flight_directory, carrier, directory, default},
        %% Options of streams alone.
        {mode, native, {one_of, [dynamic, direct_only, indirect_only]}, dynamic},
        {landing_buffers, native, {integer, 0, 4096, "buffers"}, 256},
        {landing_bytes, native, {integer, 4096, 1 bsl 20, "bytes"}, 68 * 1024},
        {direct_bytes, native, {integer, 8192, 1 bsl 30, "bytes"}, 16 * 1024},
        {zero_copy, native, {one_of, [auto, windows, always, never]}, auto},
        {call_bytes, native, {integer, 4096, 1 bsl 20, "bytes"}, 128 * 1024},
        {sends_max, native, {integer, 1, 4096, "sends"}, 64},
        {receives_max, native, {integer, 1, 4096, "receives"}, 64},
        {backlog, native, {integer, 1, 4096, "connections"}, 128}
    ].

-spec of_guard(config()) -> config().
of_guard(Config) -> maps:with([Key || {Key, guard, _Type, _Default} <- list()], Config).

%% The options of this node: defaults, application environment, command line.
-spec node() -> {ok, config()} | {error, error()}.
node() ->
    case load_application() of
        ok -> of_node();
        Error -> Error
    end.

of_node() ->
    List = list(),
    Environment = [
        Pair
     || {Key, _} = Pair <- application:get_all_env(inet_rdma), Key =/= included_applications
    ],
    case persistent_term:get(?CHECKED, none) of
        {Environment, List, Config} -> {ok, Config};
        _ -> keep(check_all(Environment, List), Environment, List)
    end.

keep({ok, Config} = Checked, Environment, List) ->
    persistent_term:put(?CHECKED, {Environment, List, Config}),
    Checked;
keep(Error, _Environment, _List) ->
    Error.

check_all(Environment, List) ->
    Defaults = maps:from_list([{Key, Default} || {Key, _, _, Default} <- List]),
    merge(Environment ++ [option(Flag, List) || Flag <- flags()], Defaults).

%% While the kernel boots, the application is not loaded yet, and its options of a configuration
%% file come with its load. Without a configuration file the application is not loaded: that would
%% be most of the time that this carrier adds to a node's start. With a configuration file a load
%% that fails is an error: the file may ask for TLS.
load_application() ->
    case has_configuration_file() andalso application:get_key(inet_rdma, vsn) =:= undefined of
        true -> load_by_another();
        false -> ok
    end.

has_configuration_file() ->
    case persistent_term:get(?HAS_FILE, unknown) of
        unknown ->
            HasFile = lists:any(fun(Flag) -> init:get_argument(Flag) =/= error end, [
                config, configfd
            ]),
            persistent_term:put(?HAS_FILE, HasFile),
            HasFile;
        HasFile ->
            HasFile
    end.

%% The application controller does not answer while it stops an application, and that application's
%% stop/1 may wait for a link. So another process asks it, and the wait for that process is bounded.
load_by_another() ->
    case inet_rdma_bounded:call(application, load, [inet_rdma], ?LOAD_MS) of
        {ok, ok} -> ok;
        {ok, {error, {already_loaded, inet_rdma}}} -> ok;
        {ok, {error, Reason}} -> {error, {not_loaded, Reason}};
        {exit, Reason} -> {error, {not_loaded, Reason}};
        timeout -> {error, {not_loaded, timeout}}
    end.

%% Lays options over a config that was checked before.
-spec merge([{atom(), term()}], config()) -> {ok, config()} | {error, error()}.
merge([{Key, Value} | Rest], Config) ->
    case check(Key, Value) of
        {ok, Checked} -> merge(Rest, Config#{Key => Checked});
        Error -> Error
    end;
merge([Other | _], _Config) ->
    {error, {unknown_option, Other}};
merge([], #{mode := direct_only, landing_buffers := 0}) ->
    {error, {bad_option, landing_buffers, 0, "at least 1 with mode direct_only"}};
merge([], Config) ->
    {ok, Config}.

%% The values of these keys, in their order.
-spec values(config(), [atom()]) -> {ok, [{atom(), term()}]} | {error, error()}.
values(Config, Keys) ->
    case [Key || Key <- Keys, not is_map_key(Key, Config)] of
        [] -> {ok, [{Key, maps:get(Key, Config)} || Key <- Keys]};
        [Unknown | _] -> {error, {unknown_option, Unknown}}
    end.

%% An unknown key stays a text, which merge/2 refuses.
option({Key, Text}, List) ->
    case [{Known, parse(Type, Text)} || {Known, _, Type, _} <- List, atom_to_list(Known) =:= Key] of
        [Option] -> Option;
        [] -> {Key, Text}
    end.

%% -inet_rdma k1 v1 k2 v2 -inet_rdma k3 v3
flags() ->
    case init:get_argument(inet_rdma) of
        {ok, Groups} -> lists:append([pairs(Group) || Group <- Groups]);
        error -> []
    end.

pairs([Key, Value | Rest]) -> [{Key, Value} | pairs(Rest)];
pairs([Key]) -> [{Key, "(missing)"}];
pairs([]) -> [].

%% The values of the command line that are not Erlang terms. OTP reads them as terms when it loads
%% the application, as a release does, and does not start with such a value.
-spec not_terms() -> [{Key :: string(), Value :: string()}].
not_terms() -> [Pair || {_Key, Value} = Pair <- flags(), not is_term(Value)].

is_term(Text) ->
    case erl_scan:string(Text ++ ".") of
        {ok, Tokens, _} -> element(1, erl_parse:parse_term(Tokens)) =:= ok;
        _ -> false
    end.

%% Reads a value of the command line without the parser of terms, whose modules an early start would
%% have to load.
parse(directory, "default") ->
    default;
parse(shared_directory, "none") ->
    none;
parse(congestion, "default") ->
    default;
parse(congestion, Text) ->
    Text;
parse(Type, [$" | Quoted] = Text) when Type =:= directory; Type =:= shared_directory ->
    case lists:reverse(Quoted) of
        [$" | Path] -> lists:reverse(Path);
        _ -> Text
    end;
parse(Type, Text) when Type =:= directory; Type =:= shared_directory ->
    Text;
%% Reads [1000,1001] and 1000,1001. Any other text becomes a binary: a string, which is a list of
%% integers, could pass for user ids.
parse({users, _Max}, Text) ->
    try
        [list_to_integer(User) || User <- string:lexemes(Text, "[,]")]
    catch
        error:badarg -> unicode:characters_to_binary(Text)
    end;
parse(_Type, Text) ->
    try
        list_to_integer(Text)
    catch
        error:badarg ->
            try
                list_to_existing_atom(Text)
            catch
                error:badarg -> Text
            end
    end.

%% dead_after_ms is a former name.
check(Key, Value) when Key =:= dead_after_ms; Key =:= "dead_after_ms" ->
    {error, {bad_option, dead_after_ms, Value, "called suspect_after_ms"}};
check(Key, Value) ->
    case lists:keyfind(Key, 1, list()) of
        {Key, _, Type, _} ->
            case checked(Type, Value) of
                {ok, Checked} -> {ok, Checked};
                error -> {error, {bad_option, Key, Value, expected(Type)}}
            end;
        false ->
            {error, {unknown_option, Key}}
    end.

%% The value as it is used.
checked(shared_directory, none) ->
    {ok, none};
checked(shared_directory, Path) ->
    Bytes = bytes(Path),
    case is_path(Bytes) of
        true -> {ok, Bytes};
        false -> error
    end;
checked({users, Max}, Users) when length(Users) =< Max ->
    case lists:all(fun is_user/1, Users) of
        true -> {ok, lists:usort(Users)};
        false -> error
    end;
checked({users, _Max}, _Users) ->
    error;
checked(congestion, default) ->
    {ok, default};
checked(congestion, Name) ->
    inet_rdma_congestion:checked(Name);
checked(Type, Value) ->
    case is_valid(Type, Value) of
        true -> {ok, Value};
        false -> error
    end.

%% Refuses . and .. as parts: with one of them after a symbolic link the kernel would follow the
%% link.
is_path(<<"/", _/binary>> = Path) when byte_size(Path) =< ?PATH_BYTES_MAX ->
    Parts = binary:split(Path, <<"/">>, [global]),
    is_text(Path) andalso Parts -- [<<".">>, <<"..">>] =:= Parts;
is_path(_) ->
    false.

is_user(User) -> is_integer(User) andalso User >= 0 andalso User =< ?USER_MAX.

is_valid({integer, Min, Max, _Unit}, Value) ->
    is_integer(Value) andalso Value >= Min andalso Value =< Max;
is_valid({zero_or, _Min, _Max, _Unit}, 0) ->
    true;
is_valid({zero_or, Min, Max, Unit}, Value) ->
    is_valid({integer, Min, Max, Unit}, Value);
is_valid({one_of, Atoms}, Value) ->
    lists:member(Value, Atoms);
is_valid(directory, default) ->
    true;
is_valid(directory, <<$/, _/binary>> = Path) ->
    is_text(bytes(Path));
is_valid(directory, [$/ | _] = Path) ->
    is_text(bytes(Path));
is_valid(directory, _) ->
    false.

%% Names of files contain no byte 0.
is_text(Path) -> is_binary(Path) andalso binary:match(Path, <<0>>) =:= nomatch.

bytes(Path) ->
    try
        unicode:characters_to_binary(Path)
    catch
        error:badarg -> error
    end.

expected(shared_directory) ->
    io("none, or an absolute path of ~b bytes at most, without . and .. as parts", [?PATH_BYTES_MAX]);
expected(congestion) ->
    inet_rdma_congestion:expected();
expected({users, Max}) ->
    io("a list of user ids from 0 to ~b, ~b at most", [?USER_MAX, Max]);
expected({integer, Min, Max, Unit}) ->
    io("an integer from ~b to ~b (~s)", [Min, Max, Unit]);
expected({zero_or, Min, Max, Unit}) ->
    "0, or " ++ expected({integer, Min, Max, Unit});
expected(directory) ->
    "an absolute path, or default";
expected({one_of, Atoms}) ->
    "one of " ++ names(Atoms).

names(Atoms) -> lists:flatten(lists:join(", ", [atom_to_list(Atom) || Atom <- Atoms])).

io(Format, Arguments) -> lists:flatten(io_lib:format(Format, Arguments)).

-spec format_error(error()) -> string().
format_error({unknown_option, Key}) ->
    io("inet_rdma: unknown option ~tp; known are ~s", [
        Key, names([Known || {Known, _, _, _} <- list()])
    ]);
format_error({bad_option, Key, Value, Expected}) ->
    io("inet_rdma: option ~s has the value ~tp; it must be ~s", [Key, Value, Expected]);
format_error({not_loaded, timeout}) ->
    io(
        "inet_rdma: the application controller has not loaded the application inet_rdma in ~b ms, "
        "so the options of the configuration file are not known",
        [?LOAD_MS]
    );
format_error({not_loaded, Reason}) ->
    io(
        "inet_rdma: the application inet_rdma cannot be loaded, so the options of the "
        "configuration file are not known: ~0tp; inet_rdma.app belongs beside the modules",
        [Reason]
    ).
