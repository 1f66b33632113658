%% A hook of Common Test that notes which driver carries each link of the test node, and writes the
%% counts at the end to the file links beside the logs: OTP falls back to inet_tcp without a word if
%% a suite gives -proto_dist again.
-module(inet_rdma_otp_links).

-export([id/1, init/2, terminate/1]).

-define(LOOK_MS, 20).

-spec id([file:filename()]) -> module().
id(_Options) ->
    ?MODULE.

%% A process that looks, and no subscriber of net_kernel: suites restart that, and count its
%% subscribers.
-spec init(module(), [file:filename()]) -> {ok, {pid(), file:filename()}}.
init(_Id, [File]) ->
    {ok, {spawn(fun() -> look(#{}) end), File}}.

-spec terminate({pid(), file:filename()}) -> ok.
terminate({Watch, File}) ->
    Ref = monitor(process, Watch),
    Watch ! {seen, self()},
    receive
        {'DOWN', Ref, process, Watch, Reason} ->
            error({no_links, Reason});
        {seen, Watch, Links} ->
            Counts = maps:fold(
                fun(_, Driver, Sums) -> maps:update_with(Driver, fun(N) -> N + 1 end, 1, Sums) end,
                #{},
                Links
            ),
            ok = file:write_file(File, [
                io_lib:format("~ts ~b~n", [Driver, N])
             || {Driver, N} <- maps:to_list(Counts)
            ])
    end.

look(Links) ->
    receive
        {seen, Asker} ->
            Asker ! {seen, self(), Links}
    after ?LOOK_MS ->
        look(lists:foldl(fun note/2, Links, erlang:system_info(dist_ctrl)))
    end.

%% A link that has ended meanwhile has no driver.
note({_Node, Controller}, Links) when not is_map_key(Controller, Links) ->
    case driver(Controller) of
        undefined -> Links;
        Driver -> Links#{Controller => Driver}
    end;
note(_Link, Links) ->
    Links.

%% The port of a link has the name of a socket of inet.
driver(Port) when is_port(Port) ->
    case {inet_rdma_port:is_link(Port), erlang:port_info(Port, name)} of
        {_, undefined} -> undefined;
        {true, _} -> "inet_rdma_nif";
        {false, {name, Name}} -> Name
    end;
driver(Process) when is_pid(Process) ->
    "process".
