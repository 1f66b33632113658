%% @doc A report on this machine's fabrics, which of them carry a node's links, and the causes that
%% keep them on TCP.
%%
%% report/0 gives it as a term. Without Mix:
%%
%%     erl -noshell -pa EBIN -eval 'inet_rdma:load_tools(), inet_rdma_doctor:main()' [-json]
%%
%% The other modules are internal: inet_rdma_doctor_live asks the node, _facts reads the kernel's
%% files, _tls looks at certificates, _links at links, _findings judges, _text prints.
%% inet_rdma_providers has the profiles of devices.
-module(inet_rdma_doctor).

-export([report/0, report/2, format/1, to_json/1, main/0]).
-export_type([report/0]).

%% starts: a node starts with these options. leaves_tcp: links of such a node can leave TCP, if only
%% within this host. this_host, other_hosts: what carries links to nodes there that can do the same.
%% Texts and names are binaries; undefined: not known. locked_memory: what links over verbs need of
%% it, and how many fit at the same time.
-type report() :: #{
    starts := boolean(),
    leaves_tcp := boolean(),
    fabric := auto | shm | verbs | tcp,
    this_host := shm | verbs | tcp | tls,
    other_hosts := verbs | tcp | tls,
    machine := #{
        kernel := binary() | undefined,
        otp := binary(),
        schedulers := pos_integer(),
        cores := pos_integer() | undefined,
        modules := [binary()]
    },
    libraries := [inet_rdma_doctor_facts:library()],
    node_files := [inet_rdma_doctor_facts:node_file()],
    locked_memory := inet_rdma_doctor_findings:locked_memory(),
    devices := [inet_rdma_doctor_facts:device()],
    findings := [inet_rdma_doctor_findings:finding()]
}.

%% @doc Looks at this machine and at the links of this node, within some milliseconds. Opens each
%% RDMA device, and a connection of this node to itself over shm.
-spec report() -> report().
report() ->
    report("/", inet_rdma_doctor_live:facts()).

%% @doc The files of the kernel from below Root, the rest from Live: a machine that was recorded.
-spec report(Root :: file:filename(), inet_rdma_doctor_live:live()) -> report().
report(Root, Live) ->
    Facts = inet_rdma_doctor_facts:read(Root, Live),
    Machine = maps:merge(
        maps:with([kernel, modules], Facts), maps:with([otp, schedulers, cores], Live)
    ),
    maps:merge(
        (inet_rdma_doctor_findings:judge(Facts))#{machine => Machine},
        maps:with([libraries, node_files, devices], Facts)
    ).

%% @doc A table for people.
-spec format(report()) -> iodata().
format(Report) ->
    inet_rdma_doctor_text:table(Report).

%% @doc The report as one JSON object, in ASCII: atoms are strings, undefined is null.
-spec to_json(report()) -> iodata().
to_json(Report) ->
    inet_rdma_doctor_text:json(Report).

%% @doc Prints the table, or JSON with the argument -json, and ends the VM: status 0 if links can
%% leave TCP, else 1.
-spec main() -> no_return().
main() ->
    Report = #{leaves_tcp := LeavesTcp} = report(),
    Text =
        case wants_json() of
            true -> [to_json(Report), $\n];
            false -> format(Report)
        end,
    io:put_chars(unicode:characters_to_list(iolist_to_binary(Text))),
    halt(
        case LeavesTcp of
            true -> 0;
            false -> 1
        end
    ).

%% -json is a flag of the VM's, and an argument after -extra.
wants_json() ->
    init:get_argument(json) =/= error orelse
        [] =/=
            [
                Argument
             || Argument <- init:get_plain_arguments(), lists:member(Argument, ["-json", "--json"])
            ].
