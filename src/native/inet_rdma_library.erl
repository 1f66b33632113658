%% Where the native library is: beside the directory of inet_rdma_nif, as module and library are
%% built together. Whether its file is whole.
%%
%% This runs while the kernel boots, in an embedded release even before the code server: it cannot
%% use `file`, `application` and `code` then. The primitive loader knows the directories of modules
%% at any time; directories that were added later (by Mix, rebar3 or -pa in a script) are known to
%% the code server only.
-module(inet_rdma_library).

-export([find/0, missing/1, check/1, of_another_version/0]).

-define(LIBRARY, "inet_rdma_nif").
-define(ELF, 127, "ELF", 2, 1).
-define(ELF_BYTES, 64).
-define(SECTION_BYTES, 64).
-define(SEGMENT_BYTES, 56).
%% A section without bytes in the file.
-define(NOBITS, 8).

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
    <<
        "priv/"
        ?LIBRARY
        ".so is in no application directory of the code path: mix compile and rebar3 compile make "
        "it, or say what is missing"
    >>;
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
find([]) ->
    error.

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

%% Whether the file, given without its extension, has all bytes that its headers name. The system's
%% loader maps a file that was cut off, and the VM ends by SIGBUS when it reads what is missing.
-spec check(Library :: file:filename()) -> ok | {error, {load_failed, Why :: binary()}}.
check(Library) ->
    case prim_file:open(Library ++ ".so", [read, binary]) of
        {ok, File} ->
            try
                whole(Library, File)
            after
                prim_file:close(File)
            end;
        %% load_nif/2 says why.
        {error, _} ->
            ok
    end.

whole(Library, File) ->
    {ok, Bytes} = prim_file:position(File, eof),
    case bytes(read(File, 0, ?ELF_BYTES), File) of
        Named when Named > Bytes -> {error, {load_failed, cut_off(Library, Bytes, Named)}};
        _ -> ok
    end.

cut_off(Library, Bytes, Named) ->
    Text = io_lib:format(
        "~ts.so is cut off after ~b of ~b bytes: build or copy it again, then restart the node",
        [Library, Bytes, Named]
    ),
    unicode:characters_to_binary(Text).

%% The bytes up to which its headers, segments and sections reach at least. 0: it is no library of a
%% machine with 64 bits and little-endian numbers, which load_nif/2 refuses or this library does not
%% know.
bytes(
    <<?ELF, _:26/binary, Segments:64/little, Sections:64/little, _:6/binary,
        ?SEGMENT_BYTES:16/little, SegmentCount:16/little, ?SECTION_BYTES:16/little,
        SectionCount:16/little, _/binary>>,
    File
) ->
    lists:max(
        [
            ?ELF_BYTES,
            Segments + SegmentCount * ?SEGMENT_BYTES,
            Sections + SectionCount * ?SECTION_BYTES
        ] ++
            [
                Offset + Bytes
             || <<_:64, Offset:64/little, _:128, Bytes:64/little, _/binary>> <-
                    rows(read(File, Segments, SegmentCount * ?SEGMENT_BYTES), ?SEGMENT_BYTES)
            ] ++
            [
                Offset + Bytes
             || <<_:32, Type:32/little, _:128, Offset:64/little, Bytes:64/little, _/binary>> <-
                    rows(read(File, Sections, SectionCount * ?SECTION_BYTES), ?SECTION_BYTES),
                Type =/= ?NOBITS
            ]
    );
bytes(Header, _File) when byte_size(Header) < ?ELF_BYTES ->
    ?ELF_BYTES;
bytes(_Header, _File) ->
    0.

%% What there is of these bytes.
read(File, Offset, Bytes) ->
    case prim_file:pread(File, Offset, Bytes) of
        {ok, Read} -> Read;
        _EofOrError -> <<>>
    end.

%% Those that are whole.
rows(Table, Bytes) -> [Row || <<Row:Bytes/binary>> <= Table].

%% The library and the modules do not know the same functions, commands, numbers or options.
-spec of_another_version() -> {error, {other_version, Why :: binary()}}.
of_another_version() ->
    {error,
        {other_version, <<
            "priv/"
            ?LIBRARY
            ".so and the modules are of two versions: build both, by mix compile, rebar3 compile "
            "or make build, where cargo is, or take the archive of this version; then restart the "
            "node"
        >>}}.
