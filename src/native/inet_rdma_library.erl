%% Where the native library is: beside the directory of inet_rdma_nif, as module and library are built together.
%%
%% This runs while the kernel boots, in an embedded release even before the code server: it cannot use `file`,
%% `application` and `code` then. The primitive loader knows the directories of modules at any time; directories that
%% were added later (by Mix, rebar3 or -pa in a script) are known to the code server only.
-module(inet_rdma_library).

-export([find/0, missing/1]).

-define(LIBRARY, "inet_rdma_nif").

%% Its path without the extension.
-spec find() -> {ok, file:filename()} | {error, {not_found, Why :: binary()}}.
find() ->
    case find(primitive_path() ++ code_path()) of
        {ok, Library} -> {ok, Library};
        error -> {error, {not_found, missing(erlang:system_info(os_type))}}
    end.

%% On which system: the value of os:type/0.
-spec missing({Family :: atom(), Name :: atom()}) -> Why :: binary().
missing({unix, linux}) ->
    <<"priv/" ?LIBRARY ".so is in no application directory of the code path: mix compile and rebar3 compile make it, "
      "or say what is missing">>;
missing({_Family, Name}) ->
    <<"the native library is for Linux, and this system is ", (atom_to_binary(Name))/binary>>.

primitive_path() ->
    {ok, Path} = erl_prim_loader:get_path(),
    Path.

code_path() ->
    case whereis(code_server) of
        undefined -> [];
        _ -> code:get_path()
    end.

find([Dir | Rest]) ->
    Beam = Dir ++ "/inet_rdma_nif.beam",
    Library = parent(Dir) ++ "priv/" ++ ?LIBRARY,
    case is_file(Beam) andalso is_file(Library ++ ".so") of
        true -> {ok, Library};
        false -> find(Rest)
    end;
find([]) -> error.

%% "x/ebin" -> "x/", "ebin" -> "", "." -> "../"
parent(Dir) ->
    case lists:reverse(Dir) of
        "/" ++ Reversed -> parent(lists:reverse(Reversed));
        "." -> "../";
        Reversed -> lists:reverse(lists:dropwhile(fun(Char) -> Char =/= $/ end, Reversed))
    end.

is_file(Name) ->
    case erl_prim_loader:read_file_info(Name) of
        {ok, _} -> true;
        error -> false
    end.
