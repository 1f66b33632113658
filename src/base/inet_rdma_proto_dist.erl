%% The VM's flag -proto_dist. OTP takes it only if the command line has it once. If it is there
%% twice, also with one value, OTP runs inet_tcp without a word: no carrier of this library runs,
%% and what does run of it says so.
-module(inet_rdma_proto_dist).

-export([ignored/0, log_if_ignored/0]).

-include_lib("kernel/include/logger.hrl").

-define(OURS, ["inet_rdma", "inet6_rdma"]).

%% Why the flag does not count, and what to do.
-spec ignored() -> none | {Why :: binary(), Fix :: binary()}.
ignored() ->
    case init:get_argument(proto_dist) of
        {ok, [_, _ | _] = Given} ->
            case [Value || Value <- lists:append(Given), lists:member(Value, ?OURS)] of
                [] -> none;
                _ -> {why(Given), fix()}
            end;
        _ ->
            none
    end.

why(Given) ->
    inet_rdma_text:text(
        "the flag -proto_dist is given ~b times (~ts), and OTP takes one alone: this node's links "
        "are those of inet_tcp, not encrypted, whatever the options say",
        [length(Given), lists:join(", ", [lists:join(" ", Values) || Values <- Given])]
    ).

fix() ->
    <<"give it once: look in ERL_FLAGS, ERL_AFLAGS, ERL_ZFLAGS, vm.args, the arguments of the command and of `peer`">>.

%% Once for each VM.
-spec log_if_ignored() -> ok.
log_if_ignored() ->
    case persistent_term:get(?MODULE, unknown) of
        known ->
            ok;
        unknown ->
            ok = persistent_term:put(?MODULE, known),
            _ = [?LOG_ERROR("inet_rdma: ~ts; ~ts", [Why, Fix]) || {Why, Fix} <- [ignored()]],
            ok
    end.
