%% Takes all descriptors or ports of a node but some, or all places of its process table, and gives
%% them back.
-module(inet_rdma_test_limit).

%% Called in the node that runs the tests.
-export([why_not/0, leave_descriptors/2, give_descriptors/1, leave_ports/2]).
%% Called in the node under test.
-export([hold_files/1, hold_ports/1, hold_processes/2]).

-define(PROGRAM, "prlimit").
%% Far more than a test needs.
-define(MANY, 20000).

%% Why this machine cannot limit another process; none: it can.
-spec why_not() -> none | string().
why_not() ->
    case os:find_executable(?PROGRAM) of
        false -> "the program prlimit is missing (Debian: util-linux)";
        _ -> none
    end.

%% Leaves the node this number of descriptors.
-spec leave_descriptors(inet_rdma_test_node:t(), non_neg_integer()) -> ok.
leave_descriptors(#{os_pid := OsPid} = Node, Count) ->
    {ok, Names} = file:list_dir("/proc/" ++ integer_to_list(OsPid) ++ "/fd"),
    Limit = lists:max([list_to_integer(Name) || Name <- Names]) + 1,
    %% The limit is one of numbers, so the numbers between must be in use.
    ok = inet_rdma_test_node:call(Node, ?MODULE, hold_files, [Limit - length(Names)]),
    limit(OsPid, Limit + Count).

-spec give_descriptors(inet_rdma_test_node:t()) -> ok.
give_descriptors(#{os_pid := OsPid}) -> limit(OsPid, ?MANY).

limit(OsPid, Count) ->
    [] = os:cmd(lists:flatten(io_lib:format(?PROGRAM " --pid ~b --nofile=~b:", [OsPid, Count]))),
    ok.

%% Leaves the node this number of ports.
-spec leave_ports(inet_rdma_test_node:t(), non_neg_integer()) -> ok.
leave_ports(Node, Count) ->
    inet_rdma_test_node:call(Node, ?MODULE, hold_ports, [Count]).

%% By a process that stays.
-spec hold_files(non_neg_integer()) -> ok.
hold_files(Count) ->
    hold(fun() -> [file:open("/dev/null", [read, raw]) || _ <- lists:seq(1, Count)] end).

-spec hold_ports(non_neg_integer()) -> ok.
hold_ports(Left) ->
    hold(fun() ->
        Ports = open_all([]),
        [port_close(Port) || Port <- lists:sublist(Ports, Left)]
    end).

%% For this time, in which no call of the node is answered. Each place that another process leaves
%% is taken. Meanwhile this process sends messages to the node.
-spec hold_processes(Ms :: pos_integer(), node()) -> ok.
hold_processes(Ms, Peer) ->
    hold(fun() ->
        Parent = self(),
        Filler = spawn(fun() ->
            _ = erlang:send_after(Ms, self(), stop),
            fill(Parent, Peer)
        end),
        receive
            {Filler, full} -> Filler
        end
    end).

%% The VM logs each process that it cannot start. The processes end with this one.
fill(Parent, Peer) ->
    case erlang:system_info(process_count) < erlang:system_info(process_limit) of
        true ->
            _ = spawn_link(fun() ->
                receive
                    stop -> ok
                end
            end),
            fill(Parent, Peer);
        false ->
            Parent ! {self(), full},
            erlang:send({nobody, Peer}, hello),
            receive
                stop -> exit(stop)
            after 5 -> fill(Parent, Peer)
            end
    end.

open_all(Ports) ->
    try open_port({spawn_driver, inet_rdma_nif:driver()}, []) of
        Port -> open_all([Port | Ports])
    catch
        error:system_limit -> Ports
    end.

hold(Take) ->
    Caller = self(),
    Holder = spawn(fun() ->
        Taken = Take(),
        Caller ! {self(), taken},
        receive
            {give_back, Taken} -> ok
        end
    end),
    receive
        {Holder, taken} -> ok
    end.
