%% What goes over a network interface of this guest.
-module(inet_rdma_vm_capture).

-export([captured/4]).

%% All that the interface sends and receives while the first node says this text to the other again
%% and again.
-spec captured(string(), inet_rdma_test_node:t(), inet_rdma_test_node:t(), binary()) -> binary().
captured(Interface, A, B, Marker) ->
    File = filename:join("/run", inet_rdma_test_node:unique("capture")),
    Script =
        "import socket, sys\n"
        "s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))\n"
        "s.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)\n"
        "s.bind((sys.argv[1], 0))\n"
        "f = open(sys.argv[2], 'wb', buffering=0)\n"
        "print('ready', flush=True)\n"
        "while True: f.write(s.recv(70000))\n",
    Capture = open_port({spawn_executable, os:find_executable("python3")}, [
        {args, ["-c", Script, Interface, File]}, {line, 100}, exit_status
    ]),
    {os_pid, OsPid} = erlang:port_info(Capture, os_pid),
    receive
        {Capture, {data, {eol, "ready"}}} -> ok
    end,
    Said = binary:copy(Marker, 100),
    Call = [inet_rdma_vm:name(B), erlang, byte_size, [Said]],
    [3200 = inet_rdma_vm:call(A, erpc, call, Call) || _ <- lists:seq(1, 50)],
    _ = os:cmd("kill " ++ integer_to_list(OsPid)),
    receive
        {Capture, {exit_status, _}} -> ok
    end,
    {ok, Captured} = file:read_file(File),
    ok = file:delete(File),
    Captured.
