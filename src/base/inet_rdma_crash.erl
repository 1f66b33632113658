%% What a log may say of a crash. Erlang's reports have the terms in the reason, the arguments of
%% the call that failed, and the messages that wait: keys of links and streams may be among them.
-module(inet_rdma_crash).

-export([raise/3, reason/2]).

%% Ends a process that handles keys: raises what was caught again, without any term. The messages
%% that wait are dropped: the process ends.
-spec raise(error | exit | throw, Reason :: term(), Stack :: [term()]) -> no_return().
raise(Class, Reason, Stack) ->
    ok = drop_messages(),
    erlang:raise(Class, tag(Reason), [call(Call) || Call <- Stack]).

%% The reason and the stack as the reason of an exit, without any term.
-spec reason(Reason :: term(), Stack :: [term()]) -> {Tag :: term(), [term()]}.
reason(Reason, Stack) -> {tag(Reason), [call(Call) || Call <- Stack]}.

%% Reduces {badmatch, Term} to badmatch.
tag(Reason) when is_tuple(Reason), tuple_size(Reason) > 0 -> tag(element(1, Reason));
tag(Reason) when is_atom(Reason) -> Reason;
tag(_) -> unknown.

%% Replaces a call's arguments by their number.
call({Module, Function, Arguments, Location}) when is_list(Arguments) ->
    {Module, Function, length(Arguments), Location};
call({Fun, Arguments, Location}) when is_list(Arguments) ->
    {Fun, length(Arguments), Location};
call(Call) ->
    Call.

drop_messages() ->
    receive
        _ -> drop_messages()
    after 0 -> ok
    end.
