%% Nodes of one host that share no network namespace, or run as several users: containers. They meet
%% by a socket file in a directory that both mount (the options shm_directory and shm_allowed_uids),
%% and are carried over shm from there on.
%%
%% The native library checks the directory, the file and the peer's user:
%% native/core/fabric_shm/src/directory.rs.
-module(inet_rdma_neighbours).

-export([start/0, stop/0, check/1, fact/2, named/2, reach/3, is_same_user/2]).
-export_type([fact/0, reach/0]).

-include_lib("kernel/include/logger.hrl").

-import(inet_rdma_settlement_message, [cut/1]).
-import(inet_rdma_text, [reason/1, text/2]).

%% The facts of a node with a shm_directory in its hello: its user namespace, and an acceptor's
%% socket file.
-type fact() :: {UserNamespace :: integer(), file()}.
%% How two nodes meet over shm. network: by a socket of their network namespace. directory: by the
%% acceptor's file.
-type reach() :: network | {directory, file()} | {none, Why :: binary()}.
-type file() :: none | {ok, Name :: binary()} | {error, Why :: binary()}.

%% A directory that cannot be used is no error of the node's start: links to other containers stay
%% on TCP, and the log says why. Looks in a process of its own, as a file system may be slow.
-spec start() -> ok.
start() ->
    case inet_rdma_options:node() of
        {ok, #{shm_directory := Directory} = Config} when Directory =/= none ->
            %% If the process table is full a settlement says what is wrong with the directory.
            _ = inet_rdma_bounded:start(erlang, apply, [fun() -> warn(check(Config)) end, []]),
            ok;
        _ ->
            ok
    end.

warn({error, Reason}) ->
    ?LOG_WARNING(
        "inet_rdma: links to other containers of this host stay on TCP: ~ts",
        [inet_rdma_error:format(Reason)]
    );
warn(_) ->
    ok.

%% Removes this node's socket file. The next settlement makes another one.
-spec stop() -> ok.
stop() ->
    case inet_rdma_nif:is_loaded() of
        true -> inet_rdma_nif:remove_shm_file();
        false -> ok
    end.

%% Whether the directory can be used; none: the option names none.
-spec check(inet_rdma_options:config()) -> none | ok | {error, inet_rdma:reason()}.
check(#{shm_directory := none}) ->
    none;
check(#{shm_directory := Directory, shm_allowed_uids := Users}) ->
    inet_rdma_nif:check_shm_directory(Directory, Users).

%% The facts in this node's hello.
-spec fact(inet_rdma_options:config(), UserNamespace :: integer()) -> #{file => fact()}.
fact(#{shm_directory := none}, _UserNamespace) -> #{};
fact(#{shm_directory := _}, UserNamespace) -> #{file => {UserNamespace, none}}.

%% The facts in an acceptor's hello: also the name of its socket file, or why there is none.
-spec named(inet_rdma_options:config(), Facts) -> Facts when Facts :: map().
named(
    #{shm_directory := Directory, shm_allowed_uids := Users},
    #{file := {UserNamespace, none}} = Facts
) ->
    File =
        case inet_rdma_nif:shm_file(Directory, Users) of
            {ok, Name} -> {ok, Name};
            {error, Reason} -> {error, cut(reason(Reason))}
        end,
    Facts#{file := {UserNamespace, File}};
named(_Config, Facts) ->
    Facts.

%% How two nodes meet over shm; the initiator asks. Nodes with one boot id are on one host, but the
%% boot id may be hidden from a node, and each container may have one of its own. Then the initiator
%% looks for the acceptor where its hello says that it listens: name and file have 128 random bits,
%% so what is found there is the peer, on this host.
-spec reach(inet_rdma_options:config(), Own :: map(), Peer :: map()) -> reach().
reach(Config, Own, Peer) ->
    case in_network(Own, Peer) of
        false -> in_directory(Config, Own, Peer);
        true -> network;
        {error, Reason} -> {none, reason(Reason)}
    end.

in_network(#{netns := Namespace, user := User} = Own, #{netns := Namespace, user := User} = Peer) ->
    case {is_same_kernel(Own, Peer), Peer} of
        {false, #{place := {Name, _Token}}} -> is_found(inet_rdma_nif:find_witness(Name));
        {IsSame, _} -> IsSame
    end;
in_network(_Own, _Peer) ->
    false.

is_found({present, _Process}) -> true;
is_found(absent) -> false;
is_found(Error) -> Error.

in_directory(Config, #{file := _} = Own, #{file := {_, File}} = Peer) ->
    case is_same_kernel(Own, Peer) orelse is_there(Config, File) of
        true ->
            {directory, File};
        false ->
            {none, <<"the peer is on another host, or its shm_directory is another directory">>}
    end;
in_directory(_Config, Own, Peer) ->
    case is_same_kernel(Own, Peer) of
        true ->
            {none,
                text("~ts~ts", [
                    apart(Own, Peer), without(is_map_key(file, Own), is_map_key(file, Peer))
                ])};
        false ->
            {none, elsewhere(Own, Peer)}
    end.

is_there(#{shm_directory := Directory, shm_allowed_uids := Users}, {ok, Name}) ->
    inet_rdma_nif:find_shm_file({Directory, Users, Name});
is_there(_Config, _NoFile) ->
    false.

elsewhere(#{boot := <<>>}, _Peer) ->
    <<"the peer is on another host, or in another network namespace, and this node's boot id is hidden">>;
elsewhere(_Own, #{boot := <<>>}) ->
    <<"the peer is on another host, or in another network namespace, and its boot id is hidden">>;
elsewhere(_Own, _Peer) ->
    <<"the peer is on another host">>.

is_same_kernel(#{boot := Boot}, #{boot := Boot}) -> Boot =/= <<>>;
is_same_kernel(_Own, _Peer) -> false.

apart(#{netns := Namespace}, #{netns := Namespace}) -> "the peer runs as another user";
apart(_Own, _Peer) -> "the peer is on this host, but in another network namespace".

without(true, false) -> ", and has no shm_directory";
without(false, true) -> ", and this node has no shm_directory";
without(false, false) -> ", and neither node has a shm_directory".

%% True if both nodes run as one user, by the facts alone: both sides come to the same result,
%% however they meet. Within a network namespace the kernel has reported the peer's user. Through a
%% directory numbers of users can be compared within one user namespace only. 0: a namespace that is
%% not known.
-spec is_same_user(Own :: map(), Peer :: map()) -> boolean().
is_same_user(#{user := User, netns := Namespace}, #{user := User, netns := Namespace}) when
    Namespace =/= 0
->
    true;
is_same_user(#{user := User, file := {Namespace, _}}, #{user := User, file := {Namespace, _}}) ->
    Namespace =/= 0;
is_same_user(_Own, _Peer) ->
    false.
