%% Nothing here knows of the carrier.
-module(rebar_cluster).

-export([echo/2, sum/1]).

%% Sends a term to a process on another node and back.
-spec echo(node(), term()) -> term().
echo(Node, Term) ->
    Ref = make_ref(),
    Self = self(),
    _ = spawn_link(Node, fun() -> Self ! {Ref, Term} end),
    receive
        {Ref, Echo} -> Echo
    after 10000 -> exit(timeout)
    end.

%% What the other node computes.
-spec sum([integer()]) -> integer().
sum(Numbers) ->
    lists:sum(Numbers).
