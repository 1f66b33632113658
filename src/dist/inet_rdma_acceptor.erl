%% Accepts the connections to this node's distribution port, and hands them to net_kernel, which
%% starts the process of a link for each (inet_rdma_dist:accept_connection/5).
%%
%% A node whose process table or whose descriptors are used up accepts later: connections wait in
%% the listener's backlog, and the first one here. They are not closed, as to a peer that makes a
%% lost connection again a close looks like the end of this node.
%%
%% Over TCP one connection at a time is handed over. Inside TLS the handshake comes first, in a
%% process of its own, as in inet_tls_dist. The number of handshakes is bounded, so a connection
%% that is silent must not take a place: it waits here for its first bytes, and without a process.
%% Both the silent connections and the handshakes have a bound for each origin, which is an address,
%% and one for all. A connection beyond a bound displaces the oldest silent one: a peer's first
%% bytes come right after its connect. Beyond a bound of the handshakes a connection displaces the
%% oldest handshake that has taken longer than ?HALF_OPEN_MS: the peer may be a stranger that said
%% hello and nothing more. Until there is such a handshake, connections wait; the latest is the
%% first to go on, as a crowd's are older.
-module(inet_rdma_acceptor).

-behaviour(gen_server).

-export([start/3]).
%% Spawned.
-export([take/3, handshake/5]).
-export([init/1, handle_call/3, handle_cast/2, handle_info/2]).

-include_lib("kernel/include/logger.hrl").

%% Pause before another try, where the process table or the descriptors are used up.
-define(RETRY_MS, 100).
%% A log line about what is wrong with connections is followed by no other of its kind for this
%% time.
-define(LOG_MS, 60000).

%% Silent connections, in all and from one origin. inet_tls_dist has 128 connections in all.
-define(SILENT_MAX, 128).
-define(SILENT_OF_ORIGIN_MAX, 64).
%% Handshakes inside TLS at a time.
-define(HANDSHAKES_MAX, 128).
-define(HANDSHAKES_OF_ORIGIN_MAX, 64).
%% A handshake that takes longer may be displaced: the time until TCP sends a first segment again
%% for which it knows no round-trip time (RFC 6298, 2.1). A handshake takes milliseconds, and three
%% round trips.
-define(HALF_OPEN_MS, 1000).

%% First byte of a record of TLS with a handshake (RFC 8446, 5.1).
-define(TLS_HANDSHAKE, 22).

%% A connection that has no process. number: counts up. timer: closes it.
-record(pending, {
    number :: pos_integer(),
    from :: inet:ip_address(),
    origin :: inet_rdma_ip:origin(),
    timer :: reference(),
    is_silent = true :: boolean()
}).

%% kernel: net_kernel. taker: the process that accepts; none: it is about to be started again.
%% offered: a connection over TCP that net_kernel has not taken yet. pending, and handshakes by
%% their processes: inside TLS. later: the timer of the next dispatch.
-record(acceptor, {
    security :: none | tls,
    driver :: inet_rdma_transport:driver(),
    kernel :: pid(),
    listen :: inet:socket(),
    taker = none :: pid() | none,
    offered = none :: inet:socket() | none,
    accepted = 0 :: non_neg_integer(),
    pending = #{} :: #{inet:socket() => #pending{}},
    handshakes = #{} :: #{pid() => handshake()},
    later = none :: reference() | none
}).

%% Until when it keeps its place in any case, by inet_rdma_clock:now_ms/0. secured: it is over, and
%% net_kernel is asked.
-type handshake() :: {inet_rdma_ip:origin(), KeepsUntil :: inet_rdma_clock:deadline() | secured}.

%% The caller is net_kernel, to which the process is linked.
-spec start(none | tls, inet_rdma_transport:driver(), Listen :: inet:socket()) -> pid().
start(Security, Driver, Listen) ->
    {ok, Pid} = gen_server:start_link(?MODULE, {Security, Driver, self(), Listen}, [
        {spawn_opt, [{priority, max}]}
    ]),
    Pid.

init({Security, Driver, Kernel, Listen}) ->
    _ = process_flag(trap_exit, true),
    {ok,
        started(#acceptor{security = Security, driver = Driver, kernel = Kernel, listen = Listen})}.

started(#acceptor{driver = Driver, listen = Listen} = Acceptor) ->
    case inet_rdma_bounded:start_linked(?MODULE, take, [self(), Driver, Listen]) of
        {ok, Taker} -> Acceptor#acceptor{taker = Taker};
        {error, system_limit} -> start_later(Acceptor)
    end.

start_later(Acceptor) ->
    _ = erlang:send_after(?RETRY_MS, self(), start),
    Acceptor#acceptor{taker = none}.

%% Accepts a connection at each `next', and gives it to the acceptor. Is killed, and started again,
%% when this module is loaded again twice.
-spec take(Acceptor :: pid(), inet_rdma_transport:driver(), Listen :: inet:socket()) -> no_return().
take(Acceptor, Driver, Listen) ->
    case Driver:accept(Listen) of
        {ok, Socket} ->
            _ =
                case Driver:controlling_process(Socket, Acceptor) of
                    ok ->
                        Acceptor ! {taken, self(), Socket};
                    {error, _} ->
                        Driver:close(Socket),
                        self() ! next
                end,
            receive
                next -> ?MODULE:take(Acceptor, Driver, Listen)
            end;
        {error, Reason} ->
            exit({not_accepted, Reason})
    end.

handle_call(_Request, _From, Acceptor) -> {noreply, Acceptor}.

handle_cast(_Message, Acceptor) -> {noreply, Acceptor}.

handle_info({taken, Taker, Socket}, #acceptor{security = none, taker = Taker} = Acceptor) ->
    {noreply, offer(Acceptor#acceptor{offered = Socket})};
handle_info({taken, Taker, Socket}, #acceptor{security = tls, taker = Taker} = Acceptor) ->
    Taker ! next,
    {noreply, add_pending(Socket, Acceptor)};
%% net_kernel has called inet_rdma_dist:accept_connection/5. This process: there is no place in the
%% process table.
handle_info({Kernel, controller, Pid}, #acceptor{kernel = Kernel, offered = Socket} = Acceptor) when
    Pid =:= self()
->
    _ =
        case Socket of
            none -> ok;
            _ -> erlang:send_after(?RETRY_MS, self(), offer)
        end,
    {noreply, Acceptor};
handle_info(
    {Kernel, controller, Pid},
    #acceptor{kernel = Kernel, driver = Driver, offered = Socket} = Acceptor
) ->
    %% A connection that has ended meanwhile ends its process.
    _ = Driver:controlling_process(Socket, Pid),
    Pid ! {self(), controller},
    {noreply, next(Acceptor)};
handle_info(
    {Kernel, unsupported_protocol},
    #acceptor{kernel = Kernel, driver = Driver, offered = Socket} = Acceptor
) ->
    _ = Driver:close(Socket),
    {noreply, next(Acceptor)};
handle_info(offer, Acceptor) ->
    {noreply, offer(Acceptor)};
handle_info(start, #acceptor{taker = none} = Acceptor) ->
    {noreply, started(Acceptor)};
handle_info({tcp, Socket, Bytes}, #acceptor{pending = Pending} = Acceptor) when
    is_map_key(Socket, Pending)
->
    {noreply, spoken(Bytes, Socket, Acceptor)};
handle_info({Ended, Socket}, #acceptor{pending = Pending} = Acceptor) when
    Ended =:= tcp_closed, is_map_key(Socket, Pending)
->
    {noreply, closed(Socket, Acceptor)};
handle_info({tcp_error, Socket, _Reason}, #acceptor{pending = Pending} = Acceptor) when
    is_map_key(Socket, Pending)
->
    {noreply, closed(Socket, Acceptor)};
handle_info({timeout, Timer, {pending, Socket}}, #acceptor{pending = Pending} = Acceptor) ->
    case Pending of
        #{Socket := #pending{timer = Timer}} -> {noreply, closed(Socket, Acceptor)};
        #{} -> {noreply, Acceptor}
    end;
handle_info({timeout, Later, dispatch}, #acceptor{later = Later} = Acceptor) ->
    {noreply, dispatch(Acceptor#acceptor{later = none})};
handle_info({secured, Pid}, #acceptor{handshakes = Handshakes} = Acceptor) when
    is_map_key(Pid, Handshakes)
->
    #{Pid := {Origin, _}} = Handshakes,
    {noreply, Acceptor#acceptor{handshakes = Handshakes#{Pid := {Origin, secured}}}};
handle_info({'EXIT', Taker, Reason}, #acceptor{taker = Taker} = Acceptor) ->
    not_accepted(Reason, Acceptor);
handle_info({'EXIT', Pid, Reason}, #acceptor{handshakes = Handshakes} = Acceptor) when
    is_map_key(Pid, Handshakes)
->
    _ =
        Reason =:= normal orelse is_quiet(Reason) orelse
            ?LOG_ERROR("TLS distribution handshake failed: ~0tp", [Reason]),
    {noreply, dispatch(Acceptor#acceptor{handshakes = maps:remove(Pid, Handshakes)})};
handle_info(_Message, Acceptor) ->
    {noreply, Acceptor}.

%% The check of the peer's address has logged it.
is_quiet({shutdown, _}) -> true;
is_quiet(shutdown) -> true;
is_quiet(_) -> false.

%% The listener is closed: the distribution ends.
not_accepted({not_accepted, closed} = Reason, Acceptor) ->
    {stop, {shutdown, Reason}, Acceptor};
not_accepted({not_accepted, Reason}, Acceptor) ->
    ok = log(
        not_accepted,
        "inet_rdma: this node accepts no connections for now, and tries again: ~ts",
        [inet:format_error(Reason)]
    ),
    {noreply, start_later(Acceptor)};
not_accepted(_KilledOrCrashed, Acceptor) ->
    {noreply, start_later(Acceptor)}.

offer(#acceptor{offered = none} = Acceptor) ->
    Acceptor;
offer(#acceptor{kernel = Kernel, driver = Driver, offered = Socket} = Acceptor) ->
    Kernel ! {accept, self(), Socket, Driver:family(), tcp},
    Acceptor.

next(#acceptor{taker = Taker} = Acceptor) ->
    _ =
        case is_pid(Taker) of
            true -> Taker ! next;
            false -> ok
        end,
    Acceptor#acceptor{offered = none}.

%% Waits for the first bytes of a connection.
add_pending(Socket, #acceptor{accepted = Accepted, driver = Driver} = Acceptor) ->
    case {inet:peername(Socket), inet:setopts(Socket, [binary, {packet, raw}, {active, once}])} of
        {{ok, {Ip, _Port}}, ok} ->
            Origin = inet_rdma_ip:origin(Ip),
            #acceptor{pending = Pending} = Room = make_room(Origin, Acceptor),
            Timer = erlang:start_timer(net_kernel:connecttime(), self(), {pending, Socket}),
            Each = #pending{number = Accepted + 1, from = Ip, origin = Origin, timer = Timer},
            Room#acceptor{pending = Pending#{Socket => Each}, accepted = Accepted + 1};
        %% The peer has reset it.
        _ ->
            _ = Driver:close(Socket),
            Acceptor
    end.

%% Closes the oldest silent connection of the origin, or of all, where they are at their bound.
make_room(Origin, #acceptor{pending = Pending} = Acceptor) ->
    Silent = lists:sort([
        {Number, Socket, From}
     || {Socket, #pending{number = Number, origin = From, is_silent = true}} <-
            maps:to_list(Pending)
    ]),
    Own = [Each || {_, _, From} = Each <- Silent, From =:= Origin],
    case {length(Own) < ?SILENT_OF_ORIGIN_MAX, length(Silent) < ?SILENT_MAX} of
        {true, true} -> Acceptor;
        {false, _} -> displace(hd(Own), Acceptor);
        {true, false} -> displace(hd(Silent), Acceptor)
    end.

displace({_Number, Socket, _Origin}, #acceptor{pending = Pending} = Acceptor) ->
    #{Socket := #pending{from = From}} = Pending,
    ok = log(
        displaced,
        "inet_rdma: too many connections to this node's distribution port say nothing, and the "
        "oldest are closed: one of them came from ~ts",
        [inet_rdma_ip:text(From)]
    ),
    closed(Socket, Acceptor).

%% The bytes go back to the socket, for the handshake.
spoken(
    <<?TLS_HANDSHAKE, _/binary>> = Bytes,
    Socket,
    #acceptor{driver = Driver, pending = Pending} = Acceptor
) ->
    case {Driver:unrecv(Socket, Bytes), inet:setopts(Socket, [list, {packet, 4}])} of
        {ok, ok} ->
            #{Socket := Each} = Pending,
            dispatch(Acceptor#acceptor{
                pending = Pending#{Socket := Each#pending{is_silent = false}}
            });
        _ ->
            closed(Socket, Acceptor)
    end;
spoken(_Bytes, Socket, #acceptor{pending = Pending} = Acceptor) ->
    #{Socket := #pending{from = From, origin = Origin}} = Pending,
    ok = log(
        {no_tls, Origin},
        "inet_rdma: a connection from ~ts is refused: it does not begin with TLS, and this node "
        "has the option `security tls`; a node there needs that option, or `-proto_dist inet_tls`",
        [inet_rdma_ip:text(From)]
    ),
    closed(Socket, Acceptor).

closed(Socket, #acceptor{driver = Driver, pending = Pending} = Acceptor) ->
    {#pending{timer = Timer}, Others} = maps:take(Socket, Pending),
    _ = erlang:cancel_timer(Timer),
    _ = Driver:close(Socket),
    Acceptor#acceptor{pending = Others}.

%% Starts the handshakes that have a place, the latest first.
dispatch(#acceptor{pending = Pending} = Acceptor) ->
    Ready = [
        {Number, Socket, Origin}
     || {Socket, #pending{number = Number, origin = Origin, is_silent = false}} <-
            maps:to_list(Pending)
    ],
    dispatch(lists:reverse(lists:sort(Ready)), #{}, Acceptor).

%% Full: origins that have no place.
dispatch([], _Full, Acceptor) ->
    Acceptor;
dispatch([{_, _, Origin} | Ready], Full, Acceptor) when is_map_key(Origin, Full) ->
    dispatch(Ready, Full, Acceptor);
dispatch([{_, Socket, Origin} | Ready], Full, Acceptor) ->
    case place(Origin, Acceptor) of
        {ok, Room} -> dispatch(Ready, Full, begin_handshake(Socket, Room));
        {in, Ms} -> dispatch(Ready, Full#{Origin => full}, dispatch_later(Ms, Acceptor));
        none -> dispatch(Ready, Full#{Origin => full}, Acceptor)
    end.

%% A place for a handshake: at once, in this time at the latest, or when one has ended.
place(Origin, #acceptor{handshakes = Handshakes} = Acceptor) ->
    Own = maps:filter(fun(_Pid, {From, _}) -> From =:= Origin end, Handshakes),
    case {map_size(Own) < ?HANDSHAKES_OF_ORIGIN_MAX, map_size(Handshakes) < ?HANDSHAKES_MAX} of
        {true, true} -> {ok, Acceptor};
        {false, _} -> place_of_oldest(Own, Acceptor);
        {true, false} -> place_of_oldest(Handshakes, Acceptor)
    end.

place_of_oldest(Among, #acceptor{handshakes = Handshakes} = Acceptor) ->
    HalfOpen = [
        {KeepsUntil, Pid}
     || {Pid, {_Origin, KeepsUntil}} <- maps:to_list(Among), KeepsUntil =/= secured
    ],
    case
        [
            {inet_rdma_clock:left(KeepsUntil), Pid}
         || {KeepsUntil, Pid} <- lists:sublist(lists:sort(HalfOpen), 1)
        ]
    of
        [] ->
            none;
        [{0, Pid}] ->
            %% ssl closes the connection when this process has ended.
            true = exit(Pid, {shutdown, displaced}),
            ok = log(
                displaced_handshake,
                "inet_rdma: too many TLS handshakes at this node's distribution port take "
                "longer than ~b ms, and the oldest are ended",
                [?HALF_OPEN_MS]
            ),
            {ok, Acceptor#acceptor{handshakes = maps:remove(Pid, Handshakes)}};
        [{Ms, _Pid}] ->
            {in, Ms}
    end.

dispatch_later(Ms, #acceptor{later = none} = Acceptor) ->
    Acceptor#acceptor{later = erlang:start_timer(Ms, self(), dispatch)};
dispatch_later(_Ms, Acceptor) ->
    Acceptor.

begin_handshake(Socket, #acceptor{driver = Driver, kernel = Kernel} = Acceptor) ->
    #acceptor{pending = Pending, handshakes = Handshakes} = Acceptor,
    Arguments = [self(), Kernel, Driver, Socket, net_kernel:connecttime()],
    case
        inet_rdma_bounded:has_room() andalso
            inet_rdma_bounded:start_linked(?MODULE, handshake, Arguments)
    of
        {ok, Pid} ->
            {#pending{timer = Timer, origin = Origin}, Others} = maps:take(Socket, Pending),
            _ = erlang:cancel_timer(Timer),
            %% A connection that has ended meanwhile ends the handshake.
            _ = Driver:controlling_process(Socket, Pid),
            Pid ! {self(), begin_handshake},
            Handshake = {Origin, inet_rdma_clock:deadline(?HALF_OPEN_MS)},
            Acceptor#acceptor{pending = Others, handshakes = Handshakes#{Pid => Handshake}};
        _NoRoom ->
            dispatch_later(?RETRY_MS, Acceptor)
    end.

%% Owns the connection until the process of the link does.
-spec handshake(
    Acceptor :: pid(),
    Kernel :: pid(),
    inet_rdma_transport:driver(),
    inet:socket(),
    TimeoutMs :: pos_integer()
) -> ok.
handshake(Acceptor, Kernel, Driver, Socket, TimeoutMs) ->
    receive
        {Acceptor, begin_handshake} -> ok
    end,
    Connection = inet_rdma_tcp:accepted(Driver, Socket),
    case inet_rdma_tls:accept_over(Connection, TimeoutMs) of
        {ok, Secured} ->
            Acceptor ! {secured, self()},
            hand_over(Secured, Kernel, Driver, inet_rdma_clock:deadline(TimeoutMs));
        {error, _} ->
            _ = Driver:close(Socket),
            ok
    end.

hand_over(Secured, Kernel, Driver, Deadline) ->
    Kernel ! {accept, self(), Secured, Driver:family(), tls},
    receive
        {Kernel, controller, Pid} when Pid =:= self() ->
            case inet_rdma_clock:left(Deadline) of
                0 ->
                    _ = ssl:close(Secured),
                    ok;
                _ ->
                    receive
                    after ?RETRY_MS -> hand_over(Secured, Kernel, Driver, Deadline)
                    end
            end;
        {Kernel, controller, Pid} ->
            _ =
                case ssl:controlling_process(Secured, Pid) of
                    ok -> Pid ! {self(), controller};
                    {error, _} -> Pid ! {self(), exit}
                end,
            ok;
        {Kernel, unsupported_protocol} ->
            _ = ssl:close(Secured),
            ok
    end.

%% Kind: what is said once in a while.
log(Kind, Format, Arguments) ->
    _ =
        inet_rdma_links:is_due({<<>>, 0, {acceptor, Kind}}, ?LOG_MS) andalso
            ?LOG_WARNING(Format, Arguments),
    ok.
