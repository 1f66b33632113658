%% The start of the application, where a project or a release has it. It has no processes of its
%% own: those of links are below net_kernel, those of streams have owners. The start says if the VM
%% does not run the carrier that its flags name.
-module(inet_rdma_app).

-behaviour(application).
-behaviour(supervisor).

-export([start/2, stop/1]).
-export([init/1]).

-spec start(application:start_type(), term()) -> {ok, pid()}.
start(_Type, _Args) ->
    ok = inet_rdma_proto_dist:log_if_ignored(),
    {ok, _} = supervisor:start_link(?MODULE, []).

-spec stop(term()) -> ok.
stop(_State) -> ok.

-spec init([]) -> {ok, {supervisor:sup_flags(), []}}.
init([]) -> {ok, {#{}, []}}.
