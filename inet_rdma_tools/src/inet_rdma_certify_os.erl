%% Programs and files of the system, for a certificate.
-module(inet_rdma_certify_os).

-export([run/3, facts/0, random/1, make_home/1, cookie/1, remove/1]).
-export_type([facts/0]).

%% undefined: not known.
-type facts() :: #{
    kernel := binary() | undefined,
    processor := binary() | undefined,
    cores := pos_integer(),
    memory_mb := non_neg_integer() | undefined,
    otp := binary(),
    erts := binary(),
    host := binary(),
    inet_rdma := binary()
}.

%% Output and status of a program; timeout: it was killed after this time.
-spec run(file:filename(), [string()], timeout()) ->
    {non_neg_integer() | timeout, binary()} | {error, term()}.
run(Program, Args, TimeoutMs) ->
    try
        open_port({spawn_executable, Program}, [
            {args, Args}, exit_status, stderr_to_stdout, binary, hide
        ])
    of
        Port ->
            OsPid =
                case erlang:port_info(Port, os_pid) of
                    {os_pid, Id} -> Id;
                    undefined -> none
                end,
            collect(Port, OsPid, inet_rdma_clock:deadline(TimeoutMs), [])
    catch
        error:Reason -> {error, Reason}
    end.

collect(Port, OsPid, DeadlineMs, Output) ->
    receive
        {Port, {data, Data}} -> collect(Port, OsPid, DeadlineMs, [Output | Data]);
        {Port, {exit_status, Status}} -> {Status, iolist_to_binary(Output)}
    after inet_rdma_clock:left(DeadlineMs) ->
        _ =
            case is_integer(OsPid) of
                true -> os:cmd("kill -KILL " ++ integer_to_list(OsPid));
                false -> ok
            end,
        catch port_close(Port),
        {timeout, iolist_to_binary(Output)}
    end.

-spec facts() -> facts().
facts() ->
    {ok, Host} = inet:gethostname(),
    #{
        kernel => match("/proc/sys/kernel/osrelease", "^(.*)"),
        processor => match("/proc/cpuinfo", "model name\\s*:\\s*(.*)"),
        cores => erlang:system_info(schedulers_online),
        memory_mb =>
            case match("/proc/meminfo", "MemTotal:\\s*(\\d+)") of
                undefined -> undefined;
                KiB -> binary_to_integer(KiB) div 1024
            end,
        otp => list_to_binary(erlang:system_info(otp_release)),
        erts => list_to_binary(erlang:system_info(version)),
        host => unicode:characters_to_binary(Host),
        inet_rdma => version()
    }.

version() ->
    _ = application:load(inet_rdma),
    case application:get_key(inet_rdma, vsn) of
        {ok, Version} -> list_to_binary(Version);
        undefined -> <<"unknown">>
    end.

match(File, Pattern) ->
    case file:read_file(File) of
        {ok, Text} ->
            case re:run(Text, Pattern, [{capture, all_but_first, binary}, {newline, lf}]) of
                {match, [Found]} -> string:trim(Found);
                nomatch -> undefined
            end;
        {error, _} ->
            undefined
    end.

-define(MKTEMP_MS, 10000).

%% A directory that only this user can enter: HOME of nodes, with their cookie. On a command line,
%% in an argument or an `-args_file', every user of the host could read the cookie.
-spec make_home(Cookie :: iodata()) -> file:filename().
make_home(Cookie) ->
    Home =
        case run(program("mktemp"), ["-d", "-t", "inet_rdma_certify.XXXXXX"], ?MKTEMP_MS) of
            {0, Path} -> unicode:characters_to_list(string:trim(Path));
            Failed -> throw({usage, io_lib:format("mktemp -d makes no directory: ~0tp", [Failed])})
        end,
    File = cookie_file(Home),
    ok = file:write_file(File, Cookie, [exclusive]),
    ok = file:change_mode(File, 8#400),
    Home.

%% The cookie in a directory of make_home/1.
-spec cookie(file:filename()) -> binary().
cookie(Home) ->
    {ok, Cookie} = file:read_file(cookie_file(Home)),
    Cookie.

cookie_file(Home) -> filename:join(Home, ".erlang.cookie").

-spec remove(file:filename()) -> ok.
remove(Home) ->
    _ = file:del_dir_r(Home),
    ok.

program(Name) ->
    case os:find_executable(Name) of
        false -> throw({usage, [Name, " is not in PATH"]});
        Path -> Path
    end.

%% Random bytes, without the application crypto, which might not be installed.
-spec random(pos_integer()) -> binary().
random(Count) ->
    {ok, File} = file:open("/dev/urandom", [read, raw, binary]),
    {ok, Bytes} = file:read(File, Count),
    ok = file:close(File),
    Bytes.
