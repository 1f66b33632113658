%% The congestion control of a link's TCP connections: the option `congestion`.
%%
%% The kernel has a list of names, and another of those that it gives to a process without
%% CAP_NET_ADMIN. A process with that capability gets all of the first list, and modules that are
%% not loaded yet.
-module(inet_rdma_congestion).

-export([checked/1, expected/0, socket_options/1, among/1]).
-export_type([name/0]).

%% default: the kernel's choice, by route or by net.ipv4.tcp_congestion_control.
-type name() :: default | binary().

-define(IPPROTO_TCP, 6).
%% linux/tcp.h
-define(TCP_CONGESTION, 13).
%% TCP_CA_NAME_MAX of net/tcp.h, with the zero after the name.
-define(NAME_BYTES_MAX, 16).

-define(ALLOWED, "/proc/sys/net/ipv4/tcp_allowed_congestion_control").
-define(AVAILABLE, "/proc/sys/net/ipv4/tcp_available_congestion_control").

%% The name as it is used, if the kernel takes it for a socket of this process.
-spec checked(term()) -> {ok, binary()} | error.
checked(Name) when is_atom(Name) ->
    checked(atom_to_binary(Name));
checked(Name) when is_list(Name) ->
    try
        checked(list_to_binary(Name))
    catch
        error:badarg -> error
    end;
checked(Name) when is_binary(Name), Name =/= <<>>, byte_size(Name) < ?NAME_BYTES_MAX ->
    case binary:match(Name, <<0>>) =:= nomatch andalso is_taken(Name) of
        true -> {ok, Name};
        false -> error
    end;
checked(_) ->
    error.

%% OTP reports no error of a raw option, so the name is read again. A process without a socket left
%% has the name unchecked: the kernel's default is in force if it refuses the name.
is_taken(Name) ->
    case inet_tcp:listen(0, [{ip, {127, 0, 0, 1}} | socket_options(Name)]) of
        {ok, Socket} ->
            Key = {raw, ?IPPROTO_TCP, ?TCP_CONGESTION, ?NAME_BYTES_MAX},
            InForce = in_force(inet:getopts(Socket, [Key])),
            inet_tcp:close(Socket),
            InForce =:= Name;
        {error, _} ->
            true
    end.

in_force({ok, [{raw, _, _, Bytes}]}) -> hd(binary:split(Bytes, <<0>>));
in_force(_) -> unknown.

%% What the kernel has, for the error of a name that it refuses.
-spec expected() -> string().
expected() ->
    lists:flatten([
        "default, or a congestion control that the kernel gives this process",
        given(names(?ALLOWED)),
        with_capability(names(?AVAILABLE) -- names(?ALLOWED))
    ]).

given([]) -> "";
given(Names) -> [": ", lists:join(", ", Names)].

with_capability([]) ->
    "";
with_capability(Names) ->
    [
        "; it has ",
        lists:join(", ", Names),
        ", too, for a process with CAP_NET_ADMIN or once "
        "net.ipv4.tcp_allowed_congestion_control has the name"
    ].

%% By prim_file, as the file server may not run yet.
names(File) ->
    case prim_file:read_file(File) of
        {ok, Text} -> string:lexemes(binary_to_list(Text), " \n");
        {error, _} -> []
    end.

%% For a listener and for a socket that is about to be connected: accepted sockets inherit it.
-spec socket_options(name()) -> [gen_tcp:option()].
socket_options(default) -> [];
socket_options(Name) -> [{raw, ?IPPROTO_TCP, ?TCP_CONGESTION, Name}].

%% The option among others of a socket.
-spec among([gen_tcp:option()]) -> [gen_tcp:option()].
among(Options) -> [Option || {raw, ?IPPROTO_TCP, ?TCP_CONGESTION, _Name} = Option <- Options].
