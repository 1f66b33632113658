%% The check of a device's profile: its answers, and what its self-test has found, beside what the
%% public sources of its provider say. Without a profile the evidence is a draft of one.
-module(inet_rdma_certify_profile).

-export([profile/1, differences/2, draft/2]).

-import(inet_rdma_certify_step, [note/2]).
-import(inet_rdma_certify_node, [call/4]).

%% limits, without: as inet_rdma_nif:verbs_devices/0 has them.
-type device() :: #{
    limits := #{atom() => non_neg_integer()},
    without := [inet_rdma_error:tried()],
    transport := infiniband | iwarp,
    firmware := binary(),
    _ => _
}.

%% A node with a link over the device asks it, as the self-test has run there.
-spec profile(inet_rdma_certify_path:t()) -> inet_rdma_certify_step:outcome().
profile(#{device := #{name := Name, driver := Driver}} = Path) ->
    [A, _] = inet_rdma_certify_link:pair(Path),
    {ok, Devices} = call(A, inet_rdma_nif, verbs_devices, []),
    case [Found || #{name := Is, limits := _} = Found <- Devices, Is =:= Name] of
        [Device] -> judge(inet_rdma_providers:of_device(Driver, Name), Driver, Device);
        [] -> {skipped, "libibverbs does not list the device"}
    end.

judge(undefined, Driver, Device) ->
    _ = [note("draft: ~ts", [Line]) || Line <- draft(Driver, Device)],
    {skipped, [
        "no profile of the driver ",
        inet_rdma_doctor_text:word(Driver),
        " is known: please send the report, whose evidence is a draft"
    ]};
judge(#{provider := Provider, follows := Follows}, Driver, Device) ->
    note("provider ~s: ~ts", [Provider, Follows]),
    _ = [note("~ts", [Line]) || Line <- draft(Driver, Device)],
    _ =
        case differences(Provider, Device) of
            [] ->
                note("the device answers as the profile says", []);
            Differences ->
                [note("differs from the profile: ~ts", [Line]) || Line <- Differences]
        end,
    pass.

%% The device's own answers, a line each.
-spec draft(Driver :: binary() | undefined, device()) -> [iodata()].
draft(Driver, #{limits := Limits, without := Without} = Device) ->
    #{transport := Transport, firmware := Firmware} = Device,
    [
        ["driver: ", inet_rdma_doctor_text:word(Driver), ", firmware ", Firmware],
        ["transport: ", atom_to_list(Transport)]
    ] ++
        [
            [word(Key), ": ", integer_to_list(Limit)]
         || {Key, Limit} <- lists:sort(maps:to_list(Limits))
        ] ++
        [["failed in the self-test: ", names(Without)]].

%% Where the device answers something else than each kind of device of this provider does.
-spec differences(Provider :: atom(), device()) -> [iodata()].
differences(Provider, #{limits := Limits, without := Without}) ->
    Kinds = inet_rdma_providers:answers(Provider),
    [
        [word(Key), " is ", integer_to_list(Limit), ", the profile says ", one_of(Said)]
     || {Key, Limit} <- lists:sort(maps:to_list(Limits)),
        Said <- [[map_get(Key, Kind) || Kind <- Kinds, is_map_key(Key, Kind)]],
        length(Said) =:= length(Kinds),
        Said =/= [],
        not lists:member(Limit, Said)
    ] ++
        [
            ["the self-test failed for ", names(Without), ", the profile does not say so"]
         || Kinds =/= [],
            not lists:any(fun(#{without := Said}) -> Without -- Said =:= [] end, Kinds)
        ].

one_of(Numbers) ->
    lists:join(" or ", [integer_to_list(Number) || Number <- lists:usort(Numbers)]).

names([]) -> "nothing";
names(Without) -> lists:join(", ", [inet_rdma_error:tried(One) || One <- Without]).

%% As the table of docs/HARDWARE.md names it.
word(sges) -> "max_sge";
word(queue_entries) -> "max_qp_wr";
word(completion_entries) -> "max_cqe";
word(Other) -> atom_to_list(Other).
