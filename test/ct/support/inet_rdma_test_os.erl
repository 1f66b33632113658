%% What the kernel says of a process: the tests believe it rather than the node.
-module(inet_rdma_test_os).

-export([
    is_alive/1,
    state/1,
    has_listener_of_links/1,
    footprint/1,
    await_footprint/2,
    rss_bytes/1,
    cpu_ticks/1
]).
-export([rendezvous_sockets/0, rendezvous_sockets/1, rendezvous_of/1]).
-export([is_listening/1, listening_addresses/1, free_port/0, endless_dump/1]).
-export_type([footprint/0]).

-type footprint() :: #{
    fds := integer(), threads := integer(), memfd_maps := integer(), sockets := integer()
}.

%% The thread that gets memory for connections ends when none needs it, at a time of its own: not
%% counted. The kernel keeps 15 characters of a name.
-define(KEEPER, <<"inet_rdma/memor">>).
%% The thread of the listener of links, and its descriptors: they come when a link has lasted for a
%% while, and stay. Not counted either.
-define(LISTENER, <<"inet_rdma/shm">>).
-define(LISTENER_FDS, 3).

%% False also for a zombie: it holds nothing now.
-spec is_alive(pos_integer()) -> boolean().
is_alive(OsPid) ->
    not lists:member(state(OsPid), ["", "Z", "X"]).

%% The letter of /proc/PID/stat: "R", "S", "T" (stopped)...; "" when there is no such process.
-spec state(pos_integer()) -> string().
state(OsPid) ->
    case stat_fields(OsPid) of
        [State | _] -> State;
        [] -> ""
    end.

%% User and system time used so far, in clock ticks (1/100 s on Linux).
-spec cpu_ticks(pos_integer()) -> non_neg_integer().
cpu_ticks(OsPid) ->
    Fields = stat_fields(OsPid),
    list_to_integer(lists:nth(12, Fields)) + list_to_integer(lists:nth(13, Fields)).

%% The fields after the command's name, which is in parentheses and may contain anything.
stat_fields(OsPid) ->
    case file:read_file(proc(OsPid, "stat")) of
        {ok, Stat} ->
            [_, Rest] = string:split(binary_to_list(Stat), ")", trailing),
            string:lexemes(Rest, " \n");
        {error, _} ->
            []
    end.

%% All that a connection could leave behind in a process.
-spec footprint(pos_integer()) -> footprint().
footprint(OsPid) ->
    #{
        fds => length([Target || Target <- targets(OsPid), not lists:prefix("pipe:", Target)]) -
            fds(?LISTENER_FDS, has_listener_of_links(OsPid)),
        threads => length(thread_names(OsPid) -- [?KEEPER, ?LISTENER]),
        memfd_maps => memfd_maps(OsPid),
        sockets => length(rendezvous_of(OsPid))
    }.

%% The targets of the process's descriptors, without pipes. Pipes lead to programs that the VM has
%% started: OTP's resolver starts one at the first look-up, which a guard makes seconds after
%% nodeup, and keeps it.
targets(OsPid) ->
    Directory = proc(OsPid, "fd"),
    Read = [file:read_link_all(filename:join(Directory, Entry)) || Entry <- entries(Directory)],
    [Target || {ok, Target} <- Read].

fds(Count, true) -> Count;
fds(_Count, false) -> 0.

-spec has_listener_of_links(pos_integer()) -> boolean().
has_listener_of_links(OsPid) -> lists:member(?LISTENER, thread_names(OsPid)).

thread_names(OsPid) ->
    Tasks = proc(OsPid, "task"),
    Files = [filename:join([Tasks, Task, "comm"]) || Task <- entries(Tasks)],
    [string:trim(Name) || {ok, Name} <- lists:map(fun file:read_file/1, Files)].

entries(Directory) ->
    {ok, Names} = file:list_dir(Directory),
    Names.

memfd_maps(OsPid) ->
    {ok, Maps} = file:read_file(proc(OsPid, "maps")),
    length(binary:matches(Maps, <<"memfd:">>)).

%% The process's sockets with a rendezvous name: its listeners, and one for each peer that has not
%% greeted yet.
-spec rendezvous_of(pos_integer()) -> [binary()].
rendezvous_of(OsPid) ->
    Directory = proc(OsPid, "fd"),
    Links = [file:read_link(filename:join(Directory, Fd)) || Fd <- entries(Directory)],
    Open = [list_to_binary(Link) || {ok, Link} <- Links],
    [
        Line
     || Line <- rendezvous_sockets(), lists:member(<<"socket:[", (inode(Line))/binary, "]">>, Open)
    ].

inode(Line) ->
    lists:nth(7, binary:split(Line, <<" ">>, [global, trim_all])).

%% The rendezvous sockets of all nodes of this host, with the connections made through them.
-spec rendezvous_sockets() -> [binary()].
rendezvous_sockets() ->
    {ok, Table} = file:read_file("/proc/net/unix"),
    Lines = binary:split(Table, <<"\n">>, [global]),
    [Line || Line <- Lines, binary:match(Line, <<"@inet_rdma/">>) =/= nomatch].

%% Those of one port.
-spec rendezvous_sockets(inet:port_number()) -> [binary()].
rendezvous_sockets(Port) ->
    Name = <<"@inet_rdma/", (integer_to_binary(Port))/binary>>,
    [
        Line
     || Line <- rendezvous_sockets(), lists:last(binary:split(Line, <<" ">>, [global])) =:= Name
    ].

%% Whether a process of this host listens at the TCP port.
-spec is_listening(inet:port_number()) -> boolean().
is_listening(Port) -> listening_addresses(Port) =/= [].

%% The addresses at which a process listens at the TCP port, as the kernel writes them: hexadecimal,
%% in the host's order.
-spec listening_addresses(inet:port_number()) -> [string()].
listening_addresses(Port) ->
    Lines = lists:append([lines(File) || File <- ["/proc/net/tcp", "/proc/net/tcp6"]]),
    Hex = lists:flatten(io_lib:format("~4.16.0B", [Port])),
    [
        Address
     || Line <- Lines,
        [_Number, Local, _Remote, <<"0A">> | _] <- [
            binary:split(Line, <<" ">>, [global, trim_all])
        ],
        [Address, PortText] <- [string:lexemes(binary_to_list(Local), ":")],
        PortText =:= Hex
    ].

lines(File) ->
    case file:read_file(File) of
        {ok, Table} -> binary:split(Table, <<"\n">>, [global]);
        {error, enoent} -> []
    end.

-spec rss_bytes(pos_integer()) -> non_neg_integer().
rss_bytes(OsPid) ->
    {ok, Status} = file:read_file(proc(OsPid, "status")),
    {match, [Kilobytes]} = re:run(Status, "VmRSS:\\s+(\\d+) kB", [{capture, all_but_first, binary}]),
    binary_to_integer(Kilobytes) * 1024.

%% Waits until the process is back to at most this footprint.
-spec await_footprint(pos_integer(), footprint()) -> ok.
await_footprint(OsPid, Before) ->
    inet_rdma_test_wait:until({footprint_of, OsPid, Before}, 15000, fun() ->
        Now = footprint(OsPid),
        case [Key || Key <- maps:keys(Before), map_get(Key, Now) > map_get(Key, Before)] of
            [] -> true;
            Grown -> maps:with(Grown, Now)
        end
    end),
    ok.

%% For the option `under' of a node: it writes its crash dump into a pipe in this directory, named
%% dump_*, which is not read. The dump fills the pipe, and its writer waits when it has stopped the
%% schedulers.
-spec endless_dump(file:filename()) -> [string()].
endless_dump(Directory) ->
    Pipe = filename:join(Directory, inet_rdma_test_node:unique("dump")),
    "" = os:cmd("mkfifo " ++ Pipe),
    [
        "sh",
        "-c",
        "exec 3<>" ++ Pipe ++ " \"$@\"",
        "sh",
        "env",
        "ERL_CRASH_DUMP=" ++ Pipe,
        "ERL_CRASH_DUMP_SECONDS=-1"
    ].

proc(OsPid, File) ->
    filename:join(["/proc", integer_to_list(OsPid), File]).

%% A TCP port that was free a moment ago.
-spec free_port() -> inet:port_number().
free_port() ->
    {ok, Socket} = gen_tcp:listen(0, [{ip, {127, 0, 0, 1}}]),
    {ok, Port} = inet:port(Socket),
    ok = gen_tcp:close(Socket),
    Port.
