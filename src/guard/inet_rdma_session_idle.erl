%% A link that is idle for long goes back from its queue pair to TCP, which frees the queue pair's
%% memory. The initiator's guard checks for that at intervals, if the option move is earned: the
%% link moves to a queue pair again when its traffic has earned one once more.
-module(inet_rdma_session_idle).

-export([new/2, start/1, stop/1, handle_timeout/3, is_returning/1]).
-export_type([t/0]).

%% period_ms: the option move_back_ms; 0: the link never goes back. timer: what the guard does with
%% its timeout `idle'.
-type t() :: #{
    port := port(),
    period_ms := non_neg_integer(),
    state := state(),
    timer := inet_rdma_session_guard:timer()
}.

%% off: TCP carries the link, or it never goes back. watching: until the next check; Bytes: count of
%% the link's bytes at the last check. returning: this side has gone back to TCP, the peer not yet.
-type state() :: off | {watching, Bytes :: non_neg_integer()} | returning.

%% Bytes between two checks up to which a link is idle: ticks and their acknowledgements.
-define(IDLE_BYTES_MAX, 4096).

-spec new(inet_rdma_session:t(), inet_rdma_options:config()) -> t().
new(Session, Config) ->
    #{
        port => inet_rdma_session:port(Session),
        period_ms => period_ms(inet_rdma_session:role(Session), Config),
        state => off,
        timer => keep
    }.

period_ms(initiator, #{move := earned, move_back_ms := Ms}) -> Ms;
period_ms(_Role, _Config) -> 0.

-spec start(t()) -> t().
start(#{period_ms := Ms, state := off} = Idle) when Ms > 0 -> check_in(Ms, bytes(Idle), Idle);
start(Idle) -> Idle.

-spec stop(t()) -> t().
stop(Idle) -> Idle#{state := off, timer := infinity}.

%% The guard's timeout `idle'. HasTcp: the link's TCP connection is there. Number: of the standing.
-spec handle_timeout(HasTcp :: boolean(), Number :: non_neg_integer(), t()) -> t().
handle_timeout(true, Number, #{state := {watching, Before}} = Idle) -> check(Before, Number, Idle);
handle_timeout(false, _Number, #{state := {watching, _}} = Idle) -> start(stop(Idle));
handle_timeout(_HasTcp, _Number, Idle) -> Idle.

check(Before, Number, #{port := Port, period_ms := Ms} = Idle) ->
    case bytes(Idle) of
        Now when Now - Before > ?IDLE_BYTES_MAX ->
            check_in(Ms, Now, Idle);
        Now ->
            case inet_rdma_port:command(Port, return, <<Number:64/native>>) of
                {ok, <<1>>} -> Idle#{state := returning};
                %% The peer has not acknowledged everything yet: its next tick does. Or a path has
                %% changed.
                _ -> check_in(max(1, Ms div 4), Now, Idle)
            end
    end.

check_in(Ms, Bytes, Idle) -> Idle#{state := {watching, Bytes}, timer := Ms}.

bytes(#{port := Port}) ->
    case inet_rdma_port:counts(Port) of
        {ok, #{bytes_received := Received, bytes_sent := Sent}} -> Received + Sent;
        {error, closed} -> 0
    end.

-spec is_returning(t()) -> boolean().
is_returning(#{state := State}) -> State =:= returning.
