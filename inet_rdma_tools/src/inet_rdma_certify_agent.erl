%% A certificate of two hosts without ssh, both ends of it. `certify --listen PORT' runs on the host
%% that makes the certificate, and prints the command `certify --join ADDRESS:PORT' and a token. A
%% user starts that command on the other host, the agent, and gives it the token. Until the
%% certificate is done, the first host starts and controls nodes on the agent.
%%
%% The two hosts have one TCP connection, in clear, so both must trust the network, as with Erlang's
%% distribution without TLS. Both sides prove that they know the token before either reads a term.
-module(inet_rdma_certify_agent).

-export([listen/1, call/3, close/1, join/2]).
-export_type([t/0]).

%% The process that holds the connection to the other host.
-type t() :: pid().

-define(JOIN_MS, 600000).
-define(PROOF_MS, 5000).
-define(PROOF_BYTES, 64).
-define(NONCE_BYTES, 16).
-define(OPTIONS, [binary, {active, false}, {packet, 4}, {nodelay, true}, {reuseaddr, true}]).

%% Prints the command and the token for the agent, and waits until the agent has connected. Returns
%% the addresses of both ends of the connection.
-spec listen(inet:port_number()) -> {t(), {Here :: string(), There :: string()}}.
listen(Wanted) ->
    {Listener, Port} =
        case gen_tcp:listen(Wanted, ?OPTIONS) of
            {ok, Socket} ->
                {ok, Number} = inet:port(Socket),
                {Socket, Number};
            {error, Reason} ->
                throw(
                    {usage,
                        io_lib:format(
                            "cannot listen on port ~b: ~s",
                            [Wanted, inet:format_error(Reason)]
                        )}
                )
        end,
    Token = string:lowercase(
        binary_to_list(binary:encode_hex(inet_rdma_certify_os:random(?NONCE_BYTES)))
    ),
    {ok, Host} = inet:gethostname(),
    io:format(
        "start on the other host, within ~b minutes (in place of ~ts an address of this host that "
        "leads here):~n~n"
        "    certify --join ~ts:~b~n~nIt asks for the token: ~s~n~n",
        [?JOIN_MS div 60000, Host, Host, Port, Token]
    ),
    Accepted = accepted(Listener, Token, inet_rdma_clock:deadline(?JOIN_MS)),
    ok = gen_tcp:close(Listener),
    {ok, {Here, _}} = inet:sockname(Accepted),
    {ok, {There, _}} = inet:peername(Accepted),
    Owner = self(),
    Agent = spawn(fun() ->
        Ref = monitor(process, Owner),
        receive
            go -> ok
        end,
        ok = inet:setopts(Accepted, [{active, true}, {packet_size, 0}]),
        serve(Accepted, Ref, #{})
    end),
    ok = gen_tcp:controlling_process(Accepted, Agent),
    Agent ! go,
    {Agent, {inet:ntoa(Here), inet:ntoa(There)}}.

%% Closes the connection of a peer without the token, and accepts the next one.
accepted(Listener, Token, DeadlineMs) ->
    case gen_tcp:accept(Listener, inet_rdma_clock:left(DeadlineMs)) of
        {ok, Socket} ->
            ok = inet:setopts(Socket, [{packet_size, ?PROOF_BYTES}]),
            Nonce = inet_rdma_certify_os:random(?NONCE_BYTES),
            Wanted = proof(Token, Nonce, <<"join">>),
            case gen_tcp:send(Socket, Nonce) =:= ok andalso gen_tcp:recv(Socket, 0, ?PROOF_MS) of
                {ok, <<Wanted:?NONCE_BYTES/binary, Theirs:?NONCE_BYTES/binary>>} ->
                    ok = gen_tcp:send(Socket, proof(Token, Theirs, <<"listen">>)),
                    Socket;
                _ ->
                    ok = gen_tcp:close(Socket),
                    accepted(Listener, Token, DeadlineMs)
            end;
        {error, timeout} ->
            throw({usage, "nobody has joined in time"})
    end.

%% A digest of token and nonce, as in the challenge of Erlang's distribution. The token has 128
%% bits, and is used once.
proof(Token, Nonce, Side) -> erlang:md5([Token, Nonce, Side]).

%% Sends the calls of this host to the agent, and each answer to its caller. Waiting: the callers
%% without an answer.
serve(Socket, Owner, Waiting) ->
    receive
        {call, From, Ref, MFA} ->
            ok = gen_tcp:send(Socket, term_to_binary({call, term_to_binary(Ref), MFA})),
            serve(Socket, Owner, Waiting#{term_to_binary(Ref) => {From, Ref}});
        {tcp, Socket, Bytes} ->
            {answer, Id, Answer} = binary_to_term(Bytes),
            case maps:take(Id, Waiting) of
                {{From, Ref}, Left} ->
                    From ! {Ref, Answer},
                    serve(Socket, Owner, Left);
                error ->
                    serve(Socket, Owner, Waiting)
            end;
        close ->
            gen_tcp:close(Socket);
        {'DOWN', Owner, process, _, _} ->
            gen_tcp:close(Socket);
        {tcp_closed, Socket} ->
            exit(the_other_host_has_gone);
        {tcp_error, Socket, Reason} ->
            exit({the_other_host_has_gone, Reason})
    end.

%% Calls a function in the other host's program, not in a node.
-spec call(t(), {module(), atom(), [term()]}, timeout()) -> term().
call(Agent, MFA, TimeoutMs) ->
    Ref = monitor(process, Agent),
    Agent ! {call, self(), Ref, MFA},
    receive
        {Ref, {ok, Value}} ->
            demonitor(Ref, [flush]),
            Value;
        {Ref, {error, Reason}} ->
            demonitor(Ref, [flush]),
            error(Reason);
        {'DOWN', Ref, process, _, Reason} ->
            error(Reason)
    after TimeoutMs ->
        demonitor(Ref, [flush]),
        error({timeout, MFA})
    end.

-spec close(t()) -> ok.
close(Agent) ->
    Agent ! close,
    ok.

%% The command `certify --join': connects to the host that makes the certificate, and serves its
%% calls until that host closes the connection. Returns the exit status of the program.
-spec join(string(), string()) -> 0 | 1 | 2.
join(Address, Token) ->
    [Host | Rest] = string:split(Address, ":", trailing),
    case [string:to_integer(Text) || Text <- Rest] of
        [{Port, ""}] when Port > 0, Port < 65536 ->
            joined(gen_tcp:connect(Host, Port, ?OPTIONS, ?PROOF_MS), Token, Address);
        _ ->
            refused(2, [Address, " is no ADDRESS:PORT"])
    end.

joined({error, Reason}, _Token, Address) ->
    refused(1, ["cannot connect to ", Address, ": ", inet:format_error(Reason)]);
joined({ok, Socket}, Token, Address) ->
    ok = inet:setopts(Socket, [{packet_size, ?PROOF_BYTES}]),
    Own = inet_rdma_certify_os:random(?NONCE_BYTES),
    Wanted = proof(Token, Own, <<"listen">>),
    case gen_tcp:recv(Socket, 0, ?PROOF_MS) of
        {ok, <<Nonce:?NONCE_BYTES/binary>>} ->
            ok = gen_tcp:send(Socket, [proof(Token, Nonce, <<"join">>), Own]),
            case gen_tcp:recv(Socket, 0, ?PROOF_MS) of
                {ok, Wanted} ->
                    io:format("joined; nodes run here until ~ts is done~n", [Address]),
                    ok = inet:setopts(Socket, [{active, true}, {packet_size, 0}]),
                    answer(Socket);
                _ ->
                    refused(1, [Address, " does not know the token, or has another guest"])
            end;
        _ ->
            refused(1, [Address, " is no certify that waits"])
    end.

refused(Status, Why) ->
    io:put_chars(standard_error, ["certify: ", Why, $\n]),
    Status.

answer(Socket) ->
    Self = self(),
    receive
        {tcp, Socket, Bytes} ->
            {call, Id, {Module, Function, Args}} = binary_to_term(Bytes),
            _ = spawn(fun() ->
                Answer =
                    try
                        {ok, apply(Module, Function, Args)}
                    catch
                        _:Reason -> {error, Reason}
                    end,
                Self ! {answered, term_to_binary({answer, Id, Answer})}
            end),
            answer(Socket);
        {answered, Bytes} ->
            _ = gen_tcp:send(Socket, Bytes),
            answer(Socket);
        _ClosedOrError ->
            0
    end.
