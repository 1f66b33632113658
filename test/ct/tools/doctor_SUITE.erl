%% The doctor: what it says of recorded machines (doctor_SUITE_data: files of /proc, /sys and /dev),
%% and of this one.
-module(doctor_SUITE).

-include_lib("common_test/include/ct.hrl").
-include_lib("stdlib/include/assert.hrl").

-export([all/0, suite/0, init_per_suite/1, end_per_suite/1]).
-export([no_rdma_leaves_tcp_over_shm/1, no_rdma_and_verbs_wanted_stays/1, nothing_works_stays/1]).
-export([auto_without_shm_takes_a_device/1, fabric_tcp_stays/1, required_is_a_note/1]).
-export([rxe_is_a_software_device/1, rxe_shows_its_gids_as_addresses/1, rxe_counts_errors/1]).
-export([
    siw_is_a_software_device/1, siw_is_found_by_its_hardware_address/1, siw_renamed_is_still_siw/1
]).
-export([hca_with_a_port_down_leaves_tcp/1, hca_of_one_port_down_is_no_way/1]).
-export([
    hca_finds_its_ipoib_interface/1,
    hca_counts_errors_and_no_flushes/1,
    hca_without_an_address_is_a_problem/1
]).
-export([small_locked_memory_is_a_problem/1, locked_memory_holds_so_many_links/1]).
-export([
    capability_lifts_the_limit/1,
    capability_of_another_user_namespace_does_not/1,
    iwarp_needs_more_memory/1
]).
-export([
    missing_libraries_are_a_problem_with_a_device/1,
    versions_come_from_file_names/1,
    missing_node_files/1
]).
-export([
    every_device_has_the_profile_of_its_provider/1,
    device_without_rc_stays/1,
    device_that_needs_care_is_a_note/1,
    device_of_an_unknown_driver_is_a_note/1,
    device_that_failed_the_self_test_is_a_note/1,
    machine_of_a_cloud_has_a_next_step/1
]).
-export([device_without_provider/1, device_that_cannot_be_opened/1, device_that_holds_too_little/1]).
-export([
    shm_only_makes_verbs_a_note/1, wrong_option_does_not_start/1, missing_native_library_stays/1
]).
-export([links_that_lose_connections_are_notes/1, links_that_stay_are_notes_by_reason/1]).
-export([links_without_a_direct_way_are_notes/1, links_that_are_suspected_are_notes/1]).
-export([schedulers_are_a_note_where_nodes_share_cores/1, build_without_verbs_says_so/1]).
-export([
    every_finding_in_the_way_has_a_fix/1,
    table_fits_120_columns/1,
    json_is_valid/1,
    json_escapes_any_text/1
]).
-export([this_machine_leaves_tcp_over_shm/1, main_ends_with_its_verdict/1]).
-export([applications_can_be_ordered_beside_the_tools/1]).

suite() ->
    [{timetrap, {minutes, 2}}, {ct_hooks, [{inet_rdma_test_nodes, [only_rdma]}]}].

all() ->
    [
        no_rdma_leaves_tcp_over_shm,
        no_rdma_and_verbs_wanted_stays,
        nothing_works_stays,
        auto_without_shm_takes_a_device,
        fabric_tcp_stays,
        required_is_a_note,
        rxe_is_a_software_device,
        rxe_shows_its_gids_as_addresses,
        rxe_counts_errors,
        siw_is_a_software_device,
        siw_is_found_by_its_hardware_address,
        siw_renamed_is_still_siw,
        hca_with_a_port_down_leaves_tcp,
        hca_of_one_port_down_is_no_way,
        hca_finds_its_ipoib_interface,
        hca_counts_errors_and_no_flushes,
        hca_without_an_address_is_a_problem,
        small_locked_memory_is_a_problem,
        locked_memory_holds_so_many_links,
        capability_lifts_the_limit,
        capability_of_another_user_namespace_does_not,
        iwarp_needs_more_memory,
        missing_libraries_are_a_problem_with_a_device,
        versions_come_from_file_names,
        missing_node_files,
        every_device_has_the_profile_of_its_provider,
        device_without_rc_stays,
        device_that_needs_care_is_a_note,
        device_of_an_unknown_driver_is_a_note,
        device_that_failed_the_self_test_is_a_note,
        machine_of_a_cloud_has_a_next_step,
        device_without_provider,
        device_that_cannot_be_opened,
        device_that_holds_too_little,
        shm_only_makes_verbs_a_note,
        wrong_option_does_not_start,
        missing_native_library_stays,
        links_that_lose_connections_are_notes,
        links_that_stay_are_notes_by_reason,
        links_without_a_direct_way_are_notes,
        links_that_are_suspected_are_notes,
        schedulers_are_a_note_where_nodes_share_cores,
        build_without_verbs_says_so,
        every_finding_in_the_way_has_a_fix,
        table_fits_120_columns,
        json_is_valid,
        json_escapes_any_text,
        this_machine_leaves_tcp_over_shm,
        main_ends_with_its_verdict,
        applications_can_be_ordered_beside_the_tools
    ].

init_per_suite(Config) ->
    inet_rdma_test_json:needed(Config).

end_per_suite(_Config) ->
    ok.

no_rdma_leaves_tcp_over_shm(Config) ->
    Report = report(Config, none, #{}),
    ?assertMatch(
        #{leaves_tcp := true, this_host := shm, other_hosts := tcp, devices := []}, Report
    ),
    ?assertMatch([_], [F || #{about := devices, severity := note} = F <- findings(Report)]),
    ?assertEqual([], in_the_way(Report)).

no_rdma_and_verbs_wanted_stays(Config) ->
    Report = report(Config, none, #{config => {ok, options(#{fabric => verbs})}}),
    ?assertMatch(#{leaves_tcp := false, this_host := tcp, other_hosts := tcp}, Report),
    ?assertMatch([_ | _], about(devices, in_the_way(Report))).

nothing_works_stays(Config) ->
    Report = report(Config, none, #{shm => {error, <<"no memfd">>}}),
    ?assertMatch(#{leaves_tcp := false, this_host := tcp, other_hosts := tcp}, Report),
    ?assertMatch([#{text := <<"shared memory does not work: no memfd">>}], in_the_way(Report)).

auto_without_shm_takes_a_device(Config) ->
    Broken = #{shm => {error, <<"no memfd">>}},
    [
        ?assertMatch(
            #{leaves_tcp := true, this_host := verbs, other_hosts := verbs},
            report(Config, rxe, Broken#{config => {ok, options(#{fabric => Fabric})}})
        )
     || Fabric <- [auto, verbs]
    ],
    ?assertMatch(
        #{leaves_tcp := false, this_host := tcp, other_hosts := tcp},
        report(Config, rxe, Broken#{config => {ok, options(#{fabric => shm})}})
    ).

%% With the option fabric tcp the doctor finds no problem, whether the machine has a device or not.
fabric_tcp_stays(Config) ->
    [
        begin
            Report = report(Config, Machine, #{config => {ok, options(#{fabric => tcp})}}),
            ?assertMatch(
                #{starts := true, leaves_tcp := false, this_host := tcp, other_hosts := tcp}, Report
            ),
            ?assertEqual([], in_the_way(Report))
        end
     || Machine <- machines()
    ].

required_is_a_note(Config) ->
    Report = report(Config, none, #{config => {ok, options(#{required => true})}}),
    ?assertMatch(#{leaves_tcp := true}, Report),
    ?assertMatch([#{severity := ok}, #{severity := note}], about(options, findings(Report))).

rxe_is_a_software_device(Config) ->
    Report = report(Config, rxe, #{}),
    ?assertMatch(
        [
            #{
                name := <<"rxe0">>,
                driver := <<"rxe">>,
                software := true,
                transport := infiniband,
                usable := ok
            }
        ],
        maps:get(devices, Report)
    ),
    ?assertMatch(#{leaves_tcp := true, this_host := shm, other_hosts := verbs}, Report),
    ?assertEqual([], in_the_way(Report)).

%% The report leaves out the GID that is all zeros.
rxe_shows_its_gids_as_addresses(Config) ->
    ?assertMatch(
        #{
            link_layer := <<"Ethernet">>,
            state := <<"ACTIVE">>,
            interface := <<"eth0">>,
            active_mtu := 1024,
            gids := [
                #{index := 0, type := <<"RoCE v2">>, address := <<"fe80::5054:ff:fe12:3456">>},
                #{
                    index := 1,
                    type := <<"RoCE v2">>,
                    address := <<"10.9.0.1">>,
                    interface := <<"eth0">>
                }
            ]
        },
        port(report(Config, rxe, #{}), 1)
    ).

rxe_counts_errors(Config) ->
    Report = report(Config, rxe, #{}),
    ?assertEqual(
        [{<<"out_of_seq_request">>, 3}, {<<"send_rnr_err">>, 2}], counters(port(Report, 1))
    ),
    ?assertMatch([#{severity := note}], about(counters, findings(Report))).

siw_is_a_software_device(Config) ->
    Report = report(Config, siw, #{}),
    ?assertMatch(
        [#{driver := <<"siw">>, software := true, transport := iwarp}], maps:get(devices, Report)
    ),
    ?assertMatch(#{leaves_tcp := true, other_hosts := verbs}, Report).

siw_is_found_by_its_hardware_address(Config) ->
    ?assertMatch(
        #{
            interface := <<"eth1">>,
            addresses := [<<"10.9.1.1">>],
            gids := [#{type := <<"iWARP">>, address := <<"52:54:00:12:34:57">>}]
        },
        port(report(Config, siw, #{}), 1)
    ).

%% rdma-ndd changes the description of the device.
siw_renamed_is_still_siw(Config) ->
    Root = changed(Config, siw, "sys/class/infiniband/siw0/node_desc", "host1 siw0"),
    ?assertMatch(
        [#{driver := <<"siw">>, software := true}], maps:get(devices, report_at(Root, siw, #{}))
    ).

hca_with_a_port_down_leaves_tcp(Config) ->
    Report = report(Config, mlx5, #{config => {ok, options(#{fabric => verbs})}}),
    ?assertMatch(#{leaves_tcp := true, this_host := verbs, other_hosts := verbs}, Report),
    ?assertMatch(
        [
            #{
                name := <<"mlx5_0">>,
                driver := <<"mlx5_core">>,
                software := false,
                firmware := <<"20.31.1014">>
            }
        ],
        maps:get(devices, Report)
    ),
    ?assertMatch(#{state := <<"DOWN">>, physical_state := <<"Disabled">>}, port(Report, 2)),
    ?assertMatch([#{severity := ok}, #{severity := note}], about(ports, findings(Report))).

hca_of_one_port_down_is_no_way(Config) ->
    Root = changed(Config, mlx5, "sys/class/infiniband/mlx5_0/ports/1/state", "2: INIT"),
    Auto = report_at(Root, mlx5, #{}),
    ?assertMatch(#{leaves_tcp := true, this_host := shm, other_hosts := tcp}, Auto),
    [#{fix := Fix} | _] = about(ports, in_the_way(Auto)),
    ?assertMatch({_, _}, binary:match(Fix, <<"opensm">>)),
    ?assertMatch(
        #{leaves_tcp := false},
        report_at(Root, mlx5, #{config => {ok, options(#{fabric => verbs})}})
    ).

hca_finds_its_ipoib_interface(Config) ->
    Report = report(Config, mlx5, #{}),
    ?assertMatch(
        #{
            interface := <<"ib0">>,
            addresses := [<<"192.168.7.1">>],
            gids := [#{type := <<"InfiniBand">>, address := <<"fe80::c42:a103:65:3f7a">>}]
        },
        port(Report, 1)
    ),
    ?assertMatch(#{interface := <<"ib1">>}, port(Report, 2)).

hca_counts_errors_and_no_flushes(Config) ->
    Report = report(Config, mlx5, #{}),
    ?assertEqual(
        [{<<"link_downed">>, 1}, {<<"symbol_error">>, 7}, {<<"local_ack_timeout_err">>, 4}],
        counters(port(Report, 1))
    ),
    ?assertEqual([], counters(port(Report, 2))).

hca_without_an_address_is_a_problem(Config) ->
    Report = report(Config, mlx5, #{addresses => [{<<"ib0">>, [<<"fe80::c42:a103:65:3f7a">>]}]}),
    ?assertMatch(#{leaves_tcp := true, other_hosts := tcp}, Report),
    [#{text := Text, fix := Fix} | _] = about(ports, in_the_way(Report)),
    ?assertEqual(<<"mlx5_0 port 1 is active, and its interface ib0 has no IP address">>, Text),
    ?assertMatch({_, _}, binary:match(Fix, <<"ip addr add ADDRESS/BITS dev ib0">>)).

small_locked_memory_is_a_problem(Config) ->
    Report = report_at(cramped(Config), siw, #{}),
    ?assertMatch(
        #{other_hosts := tcp, locked_memory := #{limit_bytes := 65536, links := 0}}, Report
    ),
    [#{fix := Fix}] = about(locked_memory, in_the_way(Report)),
    ?assertMatch({_, _}, binary:match(Fix, <<"ulimit -l">>)),
    ?assertMatch(
        #{other_hosts := verbs, locked_memory := #{links := 45}}, report(Config, siw, #{})
    ),
    %% ring_bytes does not matter: a link begins with a small ring, and registers a larger one when
    %% it needs it.
    Large = #{config => {ok, options(#{ring_bytes => 1 bsl 23})}},
    ?assertMatch(#{locked_memory := #{links := 45}}, report(Config, siw, Large)).

%% Ring, staging memory, 3 slots of 40 bytes each, of streams also the landing buffers: in whole
%% pages.
locked_memory_holds_so_many_links(Config) ->
    Options =
        options(#{
            ring_bytes => 65535 - 4096,
            landing_buffers => 2,
            landing_bytes => 65536,
            receive_slots => 100
        }),
    Report = report(Config, mlx5, #{config => {ok, Options}}),
    %% Three for each receive slot, and 8 for the self-test.
    Link = 2 * 61440 + 16384,
    Stream = Link + 131072,
    Links = 67108864 div Link,
    ?assertMatch(
        #{
            locked_memory := #{
                limit_bytes := 67108864,
                link_bytes := Link,
                stream_bytes := Stream,
                links := Links
            }
        },
        Report
    ).

capability_lifts_the_limit(Config) ->
    Root = cramped(Config),
    ok = file:write_file(filename:join(Root, "proc/self/status"), "CapEff:\t0000000000004000"),
    ?assertMatch(
        #{other_hosts := verbs, locked_memory := #{links := unlimited}}, report_at(Root, siw, #{})
    ).

capability_of_another_user_namespace_does_not(Config) ->
    Root = cramped(Config),
    ok = file:write_file(filename:join(Root, "proc/self/status"), "CapEff:\t000001ffffffffff"),
    ok = file:write_file(
        filename:join(Root, "proc/self/uid_map"), "         0       1000          1\n"
    ),
    ?assertMatch(#{other_hosts := tcp, locked_memory := #{links := 0}}, report_at(Root, siw, #{})).

iwarp_needs_more_memory(Config) ->
    #{locked_memory := #{link_bytes := Iwarp}} = report(Config, siw, #{}),
    #{locked_memory := #{link_bytes := Roce}} = report(Config, rxe, #{}),
    ?assert(Iwarp > Roce).

missing_libraries_are_a_problem_with_a_device(Config) ->
    Root = changed(Config, rxe, "proc/self/maps", ""),
    Report = report_at(Root, rxe, #{verbs => {error, <<"not installed">>}, verbs_devices => unknown}),
    ?assertMatch(#{leaves_tcp := true, other_hosts := tcp}, Report),
    ?assertMatch([#{text := <<"not installed: libibverbs, librdmacm">>}], in_the_way(Report)),
    ?assertEqual([], in_the_way(report(Config, none, #{}))).

versions_come_from_file_names(Config) ->
    ?assertMatch(
        #{
            libraries := [
                #{name := <<"libibverbs">>, version := <<"44.0">>},
                #{name := <<"librdmacm">>, version := <<"44.0">>}
            ]
        },
        report(Config, rxe, #{})
    ),
    Root = changed(
        Config, rxe, "proc/self/maps", "7f00-7f01 r-xp 0 0:1 9 /opt/my libs/libibverbs.so.1"
    ),
    ?assertMatch(
        #{
            libraries := [
                #{file := <<"/opt/my libs/libibverbs.so.1">>, version := undefined},
                #{file := undefined}
            ]
        },
        report_at(Root, rxe, #{})
    ).

missing_node_files(Config) ->
    Root = copy(Config, rxe),
    ok = file:delete(filename:join(Root, "dev/infiniband/rdma_cm")),
    ok = file:delete(filename:join(Root, "dev/infiniband/uverbs0")),
    ok = file:del_dir_r(filename:join(Root, "sys/module/rdma_ucm")),
    Report = report_at(Root, rxe, #{verbs => {error, <<"no rdma_cm">>}}),
    Fixes = iolist_to_binary([Fix || #{fix := Fix} <- about(node_files, in_the_way(Report))]),
    ?assertMatch({_, _}, binary:match(Fixes, <<"modprobe rdma_ucm">>)),
    ?assertMatch({_, _}, binary:match(Fixes, <<"modprobe ib_uverbs">>)).

every_device_has_the_profile_of_its_provider(Config) ->
    [
        begin
            [#{severity := ok, text := Text}] = about(
                profile, findings(report(Config, Machine, #{}))
            ),
            ?assertNotEqual(nomatch, string:prefix(Text, Begin), Text)
        end
     || {Machine, Begin} <- [
            {mlx5, <<"mlx5_0, provider mlx5: RC ">>},
            {rxe, <<"rxe0, provider rxe: RC ">>},
            {siw, <<"siw0, provider siw: RC ">>}
        ]
    ].

%% The device opens and its port is active: only the profile says that no link can have it.
device_without_rc_stays(Config) ->
    Root = with_driver(Config, "efa"),
    Report = report_at(Root, mlx5, #{config => {ok, options(#{fabric => verbs})}}),
    ?assertMatch(#{leaves_tcp := false, other_hosts := tcp}, Report),
    [#{text := Text, fix := Fix}] = about(profile, in_the_way(Report)),
    ?assertEqual(
        <<"mlx5_0, provider efa: no RC queue pairs: links to other hosts stay on TCP">>, Text
    ),
    ?assertMatch({match, _}, re:run(Fix, "^ENA Express.*mptcp")),
    %% No link could have the device: with the option fabric auto nothing is missing.
    Auto = report_at(Root, mlx5, #{}),
    ?assertMatch(#{leaves_tcp := true, this_host := shm, other_hosts := tcp}, Auto),
    ?assertEqual([], in_the_way(Auto)),
    ?assertMatch([#{severity := note}], about(profile, findings(Auto))).

%% A virtual function without a PCI address of its own has a driver MODULE.PART.
device_that_needs_care_is_a_note(Config) ->
    [
        begin
            Report = report_at(with_driver(Config, Driver), mlx5, #{}),
            ?assertMatch(#{other_hosts := verbs}, Report),
            [#{severity := note, text := Text, fix := Fix}] = about(profile, findings(Report)),
            ?assertMatch({match, _}, re:run(Text, "provider mana: .*not honoured")),
            ?assertMatch({match, _}, re:run(Fix, "certify"))
        end
     || Driver <- ["mana", "mana.rdma"]
    ].

device_of_an_unknown_driver_is_a_note(Config) ->
    Report = report_at(with_driver(Config, "pigeon"), mlx5, #{}),
    ?assertMatch(#{other_hosts := verbs}, Report),
    ?assertMatch(
        [#{severity := note, text := <<"mlx5_0: no profile of the driver pigeon is known">>}],
        about(profile, findings(Report))
    ).

device_that_failed_the_self_test_is_a_note(Config) ->
    Device = device(<<"mlx5_0">>, infiniband, 4194303, [mtu(1, 4096), mtu(2, 4096)]),
    Report = report(Config, mlx5, #{verbs_devices => [Device#{without := [inline, windows]}]}),
    [#{severity := note, text := Text, fix := Fix}] = about(self_test, findings(Report)),
    ?assertMatch({match, _}, re:run(Text, "^mlx5_0: .*inline bytes, memory windows")),
    ?assertNotEqual(undefined, Fix),
    ?assertEqual([], about(self_test, findings(report(Config, mlx5, #{})))).

%% By files that each user may read. Without them, and where they name no place, nothing is said.
machine_of_a_cloud_has_a_next_step(Config) ->
    Places = [
        {"Azure", "Microsoft Corporation", "7783-7084-3265-9085-8269-3286-77"},
        {"Google Cloud", "Google", "n/a"},
        {"Alibaba Cloud", "Alibaba Cloud", "n/a"},
        {"AWS", "Amazon EC2", "Amazon EC2"},
        {none, "Microsoft Corporation", "1234"},
        {none, "Dell Inc.", ""}
    ],
    [
        begin
            Cloud = report_at(of_cloud(Config, none, Vendor, Tag), none, #{}),
            Found = about(place, findings(Cloud)),
            case {Name, Found} of
                {none, []} ->
                    ok;
                {"AWS", [#{severity := ok, text := Text, fix := undefined}]} ->
                    ?assertMatch({match, _}, re:run(Text, "of AWS: EFA"));
                {_, [#{severity := note, text := Text, fix := <<_, _/binary>>}]} ->
                    ?assertMatch({match, _}, re:run(Text, "of " ++ Name ++ ": "))
            end,
            OfDevice = report_at(of_cloud(Config, mlx5, Vendor, Tag), mlx5, #{}),
            ?assertEqual(
                [{ok, undefined} || _ <- Found],
                [
                    {Severity, Fix}
                 || #{severity := Severity, fix := Fix} <- about(place, findings(OfDevice))
                ]
            )
        end
     || {Name, Vendor, Tag} <- Places
    ],
    ?assertEqual([], about(place, findings(report(Config, none, #{})))).

of_cloud(Config, Machine, Vendor, Tag) ->
    Root = copy(Config, Machine),
    [
        begin
            Path = filename:join([Root, "sys/class/dmi/id", File]),
            ok = filelib:ensure_dir(Path),
            ok = file:write_file(Path, [Text, "\n"])
        end
     || {File, Text} <- [
            {"sys_vendor", Vendor},
            {"product_name", "Google Compute Engine"},
            {"chassis_asset_tag", Tag}
        ]
    ],
    Root.

device_without_provider(Config) ->
    Report = report(Config, rxe, #{verbs => {error, <<"no device">>}, verbs_devices => []}),
    ?assertMatch([#{usable := no_provider}], maps:get(devices, Report)),
    [#{fix := Fix}] = about(devices, in_the_way(Report)),
    ?assertMatch({_, _}, binary:match(Fix, <<"ibverbs-providers">>)).

device_that_cannot_be_opened(Config) ->
    Report = report(Config, rxe, #{
        verbs => {error, <<"no device">>},
        verbs_devices => [#{name => <<"rxe0">>, refused => <<"Permission denied">>}]
    }),
    ?assertMatch([#{usable := {refused, <<"Permission denied">>}}], maps:get(devices, Report)),
    ?assertMatch(
        [#{text := <<"rxe0 cannot be used: Permission denied">>}],
        about(devices, in_the_way(Report))
    ),
    ?assertMatch(#{<<"devices">> := _}, parsed(Report)).

device_that_holds_too_little(Config) ->
    Report = report(Config, rxe, #{config => {ok, options(#{receive_slots => 32768})}}),
    ?assertMatch(#{other_hosts := tcp}, Report),
    ?assertMatch([#{fix := <<"lower receive_slots">>}], about(devices, in_the_way(Report))).

shm_only_makes_verbs_a_note(Config) ->
    Report = report(Config, siw, #{config => {ok, options(#{fabric => shm})}}),
    ?assertMatch(#{leaves_tcp := true, this_host := shm, other_hosts := tcp}, Report),
    ?assertEqual([], in_the_way(Report)).

wrong_option_does_not_start(Config) ->
    Report = report(Config, rxe, #{config => {error, {unknown_option, ring_byte}}}),
    ?assertMatch(#{starts := false, leaves_tcp := false}, Report),
    ?assertMatch([_], about(options, in_the_way(Report))).

missing_native_library_stays(Config) ->
    Lost = {error, <<"the native library is not loaded (nofile)">>},
    Report = report(Config, rxe, #{
        native => Lost, shm => Lost, verbs => Lost, verbs_devices => unknown
    }),
    ?assertMatch(#{leaves_tcp := false, devices := [#{usable := unknown}]}, Report),
    ?assertMatch([#{about := native}], in_the_way(Report)).

%% The doctor names the build, and no part of the machine, whether the machine has a device or not.
build_without_verbs_says_so(Config) ->
    LeftOut = #{verbs => left_out, verbs_devices => unknown},
    [
        begin
            Report = report(Config, Machine, LeftOut),
            ?assertMatch(#{leaves_tcp := true, this_host := shm, other_hosts := tcp}, Report),
            ?assertMatch(
                [#{text := <<"this build has no verbs fabric", _/binary>>}],
                about(verbs, findings(Report))
            ),
            ?assertEqual([], about(libraries, findings(Report)) ++ about(devices, findings(Report)))
        end
     || Machine <- machines()
    ],
    Wanted = report(Config, rxe, LeftOut#{config => {ok, options(#{fabric => verbs})}}),
    ?assertMatch(#{leaves_tcp := false}, Wanted),
    ?assertMatch([#{about := verbs}], in_the_way(Wanted)).

schedulers_are_a_note_where_nodes_share_cores(Config) ->
    Found = fun(Schedulers, Cores) ->
        Report = report(Config, none, #{schedulers => Schedulers, cores => Cores}),
        [Severity || #{severity := Severity} <- about(schedulers, findings(Report))]
    end,
    ?assertEqual([note], Found(2, 2)),
    ?assertEqual([], Found(4, 8)),
    ?assertEqual([], Found(2, undefined)).

%% A link is reported with three losses or more, at least one in each hour on the average.
links_that_lose_connections_are_notes(Config) ->
    HourMs = 3600000,
    Link = #{fabric => shm, why => "shared memory", state => up, suspended => false},
    Links = [
        Link#{node => Node, losses => Losses, resumes => Losses, up_ms => UpMs}
     || {Node, Losses, UpMs} <- [
            {often@host, 3, 3 * HourMs},
            {seldom@host, 3, 3 * HourMs + 1},
            {twice@host, 2, 1000},
            {never@host, 0, 1000}
        ]
    ],
    Gone = Link#{node => gone@host, losses => 1, resumes => 0, up_ms => HourMs, suspended => true},
    Plain = maps:remove(suspended, Link#{node => plain@host, up_ms => HourMs}),
    Report = report(Config, none, #{links => [Plain, Gone | Links]}),
    ?assertMatch(
        [
            #{
                severity := note,
                fix := <<_, _/binary>>,
                text := <<"the link to gone@host has lost its connection, and no path carries it">>
            },
            #{
                severity := note,
                fix := <<_, _/binary>>,
                text := <<
                    "the link to often@host has lost its TCP connection 3 times in 3 h, and "
                    "resumed 3 times"
                >>
            }
        ],
        about(links, findings(Report))
    ),
    ?assertMatch(#{leaves_tcp := true}, Report).

%% On a detour now, or once in a day on the average.
links_without_a_direct_way_are_notes(Config) ->
    DayMs = 86400000,
    Link = #{
        fabric => shm, why => "shared memory", state => up, detoured => false, via => undefined
    },
    Links = [
        Link#{
            node => now@host, detours => 1, up_ms => 9 * DayMs, detoured => true, via => over@host
        },
        Link#{node => told@host, detours => 1, up_ms => 9 * DayMs, detoured => true},
        Link#{node => before@host, detours => 2, up_ms => 2 * DayMs},
        Link#{node => seldom@host, detours => 2, up_ms => 2 * DayMs + 1},
        Link#{node => never@host, detours => 0, up_ms => 0}
    ],
    Listeners = #{now@host => {<<"10.0.0.2">>, 9100}},
    [Now, Told, Before] = about(
        links, findings(report(Config, none, #{links => Links, listeners => Listeners}))
    ),
    ?assertMatch(
        #{
            severity := note,
            text := <<
                "the link to now@host is carried over over@host: the direct way to "
                "10.0.0.2, port 9100, is cut"
            >>
        },
        Now
    ),
    [
        ?assertMatch({_, _}, binary:match(maps:get(fix, Now), Word))
     || Word <- [
            <<"firewall">>,
            <<"listener's port">>,
            <<"`ip route get 10.0.0.2`">>,
            <<"`nc -vz 10.0.0.2 9100`">>
        ]
    ],
    ?assertMatch(
        #{
            text := <<
                "the link to told@host is carried over another node: the direct way to that node "
                "is cut"
            >>
        },
        Told
    ),
    ?assertMatch(
        #{
            text :=
                <<"the link to before@host went over another node 2 times in 48 h, and goes directly now: ",
                    _/binary>>
        },
        Before
    ).

%% Now; or three times in vain, and once in an hour on the average.
links_that_are_suspected_are_notes(Config) ->
    HourMs = 3600000,
    Link = #{
        fabric => shm,
        why => "shared memory",
        state => up,
        path_state => carried,
        false_suspicions => 0,
        up_ms => 3 * HourMs
    },
    Links = [
        Link#{node => now@host, path_state => suspected},
        Link#{node => often@host, false_suspicions => 3},
        Link#{node => seldom@host, false_suspicions => 3, up_ms => 3 * HourMs + 1},
        Link#{node => twice@host, false_suspicions => 2},
        Link#{node => well@host}
    ],
    Live = #{links => Links, config => {ok, options(#{suspect_after_ms => 700})}},
    [Now, Often] = about(links, findings(report(Config, none, Live))),
    ?assertMatch(
        #{
            severity := note,
            text := <<"the link to now@host is suspected", _/binary>>,
            fix := <<_, _/binary>>
        },
        Now
    ),
    ?assertMatch(
        #{
            severity := note,
            text := <<"the link to often@host was suspected 3 times in 3 h ", _/binary>>
        },
        Often
    ),
    ?assertMatch(
        {_, _},
        binary:match(maps:get(fix, Often), <<"raise the option suspect_after_ms, here 700">>)
    ).

%% No note with the option fabric tcp.
links_that_stay_are_notes_by_reason(Config) ->
    Link = #{state => up, up_ms => 1000},
    Many = [list_to_atom("n" ++ integer_to_list(Number) ++ "@host") || Number <- lists:seq(10, 20)],
    Links =
        [
            Link#{node => b@host, fabric => tcp, why => "it is far"},
            Link#{node => c@host, fabric => shm, why => "near"},
            Link#{node => a@host, fabric => tcp, why => "it is far"}
        ] ++
            [Link#{node => Node, fabric => tls, why => "no key"} || Node <- Many],
    ?assertMatch(
        [
            #{severity := note, text := <<"over tcp: the links to a@host, b@host; it is far">>},
            #{
                severity := note,
                text := <<
                    "over tls: the links to n10@host, n11@host, n12@host, n13@host, n14@host, "
                    "n15@host, n16@host, n17@host and 3 others; no key"
                >>
            }
        ],
        about(links, findings(report(Config, none, #{links => Links})))
    ),
    Asked = #{links => Links, config => {ok, options(#{fabric => tcp})}},
    ?assertEqual([], about(links, findings(report(Config, none, Asked)))),
    ?assertEqual([], about(links, findings(report(Config, none, #{})))).

every_finding_in_the_way_has_a_fix(Config) ->
    [
        ?assert(is_binary(Fix), Text)
     || Machine <- machines(),
        Fabric <- [auto, shm, verbs, tcp],
        Report <- [report(Config, Machine, #{config => {ok, options(#{fabric => Fabric})}})],
        #{fix := Fix, text := Text} <- in_the_way(Report)
    ].

table_fits_120_columns(Config) ->
    [
        begin
            Table = iolist_to_binary(inet_rdma_doctor:format(report(Config, Machine, #{}))),
            ct:log("~ts", [Table]),
            [
                ?assert(string:length(Line) =< 120, Line)
             || Line <- binary:split(Table, <<"\n">>, [global])
            ]
        end
     || Machine <- machines()
    ].

json_is_valid(Config) ->
    [
        begin
            Report = #{leaves_tcp := LeavesTcp, devices := Devices} = report(Config, Machine, #{}),
            ?assertMatch(#{<<"leaves_tcp">> := LeavesTcp}, parsed(Report)),
            ?assertEqual(length(Devices), length(maps:get(<<"devices">>, parsed(Report))))
        end
     || Machine <- machines()
    ].

json_escapes_any_text(_Config) ->
    Texts = [<<"\"quoted\"\\ \n\t/"/utf8>>, <<"\x{e4}\x{20ac}\x{1f600}"/utf8>>, <<0, 127>>, <<>>],
    Term = #{texts => Texts, none => undefined, yes => true, empty => [], number => -7},
    ?assertEqual(
        #{
            <<"texts">> => Texts,
            <<"none">> => null,
            <<"yes">> => true,
            <<"empty">> => [],
            <<"number">> => -7
        },
        inet_rdma_test_json:decode(inet_rdma_doctor_text:json(Term))
    ).

this_machine_leaves_tcp_over_shm(_Config) ->
    Report = inet_rdma_doctor:report(),
    ct:log("~ts", [inet_rdma_doctor:format(Report)]),
    ?assertMatch(#{leaves_tcp := true, this_host := shm}, Report),
    ?assertMatch(#{<<"leaves_tcp">> := true}, parsed(Report)),
    %% The doctor has closed its own connection, and left no message.
    ?assertEqual([], [Info || #{state := up} = Info <- inet_rdma:info()]),
    receive
        Message -> ct:fail(Message)
    after 0 -> ok
    end.

main_ends_with_its_verdict(_Config) ->
    {0, Table} = main("-inet_rdma fabric shm"),
    ?assertMatch(
        {_, _}, binary:match(Table, <<"Links of this node can leave TCP within this host.">>)
    ),
    {0, Json} = main("-inet_rdma fabric shm -json"),
    ?assertMatch(#{<<"fabric">> := <<"shm">>}, inet_rdma_test_json:decode(Json)),
    {0, Json2} = main("-inet_rdma fabric shm -extra -json"),
    ?assertMatch(#{<<"leaves_tcp">> := true}, inet_rdma_test_json:decode(Json2)),
    {1, Stays} = main("-inet_rdma fabric tcp"),
    ?assertMatch({_, _}, binary:match(Stays, <<"No link of this node can leave TCP.">>)),
    {1, Refused} = main("-inet_rdma ring_bytes 1"),
    ?assertMatch({_, _}, binary:match(Refused, <<"A node with these options does not start.">>)).

%% As RabbitMQ does before it stops its own: an application that is loaded has all that it names
%% loaded.
applications_can_be_ordered_beside_the_tools(_Config) ->
    Node = inet_rdma_test_node:start("n"),
    ok = inet_rdma_test_node:call(Node, inet_rdma, load_tools, []),
    #{starts := true} = inet_rdma_test_node:call(Node, inet_rdma_doctor, report, []),
    Loaded = [
        Name
     || {Name, _, _} <- inet_rdma_test_node:call(Node, application, loaded_applications, [])
    ],
    Named = lists:append([
        Names
     || Name <- Loaded,
        Key <- [applications, included_applications],
        {ok, Names} <- [inet_rdma_test_node:call(Node, application, get_key, [Name, Key])]
    ]),
    ?assertEqual([], lists:usort(Named) -- Loaded),
    inet_rdma_test_node:stop(Node).

main(Arguments) ->
    Command = [
        "erl -noshell -pa '",
        inet_rdma_test_node:ebin(),
        "' -eval 'ok = inet_rdma:load_tools(), inet_rdma_doctor:main().' ",
        Arguments,
        " </dev/null"
    ],
    Port = open_port({spawn, lists:flatten(Command)}, [
        binary, exit_status, {env, [{"ERL_FLAGS", false}]}
    ]),
    output(Port, <<>>).

output(Port, Said) ->
    receive
        {Port, {data, Data}} -> output(Port, <<Said/binary, Data/binary>>);
        {Port, {exit_status, Status}} -> {Status, Said}
    end.

%% Recorded machines.

machines() -> [none, rxe, siw, mlx5].

report(Config, Machine, Live) ->
    report_at(filename:join(?config(data_dir, Config), Machine), Machine, Live).

report_at(Root, Machine, Live) ->
    inet_rdma_doctor:report(Root, maps:merge(live(Machine), Live)).

live(Machine) ->
    maps:merge(
        #{
            config => {ok, options(#{})},
            not_terms => [],
            proto_dist => none,
            tls => none,
            native => ok,
            shm => ok,
            shm_directory => none,
            verbs => ok,
            mptcp => off,
            links => [],
            listeners => #{},
            flight_file => none,
            otp => <<"25">>,
            schedulers => 2,
            cores => 2
        },
        asked(Machine)
    ).

asked(none) ->
    #{
        verbs => {error, <<"this machine has no RDMA device">>},
        verbs_devices => unknown,
        addresses => [{<<"eth0">>, [<<"10.9.0.1">>]}]
    };
asked(rxe) ->
    #{
        verbs_devices => [device(<<"rxe0">>, infiniband, 32767, [mtu(1, 1024)])],
        addresses => [{<<"eth0">>, [<<"10.9.0.1">>, <<"fe80::5054:ff:fe12:3456">>]}]
    };
asked(siw) ->
    #{
        verbs_devices => [device(<<"siw0">>, iwarp, 3276800, [mtu(1, 1024)])],
        addresses => [{<<"eth1">>, [<<"10.9.1.1">>]}]
    };
asked(mlx5) ->
    #{
        verbs_devices => [device(<<"mlx5_0">>, infiniband, 4194303, [mtu(1, 4096), mtu(2, 4096)])],
        addresses => [{<<"ib0">>, [<<"192.168.7.1">>]}, {<<"ib1">>, []}]
    }.

device(Name, Transport, Completions, Ports) ->
    #{
        name => Name,
        transport => Transport,
        firmware => <<>>,
        without => [],
        ports => Ports,
        limits => #{queue_entries => 32768, sges => 30, completion_entries => Completions}
    }.

mtu(Number, Mtu) ->
    #{number => Number, active => true, active_mtu => Mtu, max_mtu => 4096}.

options(More) ->
    maps:merge(
        maps:from_list([{Key, Default} || {Key, _, _, Default} <- inet_rdma_options:list()]), More
    ).

%% One link needs more locked memory than siw's machine has.
%% The iWARP machine with a limit on locked memory that holds no link.
cramped(Config) ->
    changed(
        Config,
        siw,
        "proc/self/limits",
        "Max locked memory         65536                65536                bytes     \n"
    ).

%% The recorded machine with another text in one file.
changed(Config, Machine, File, Text) ->
    Root = copy(Config, Machine),
    ok = file:write_file(filename:join(Root, File), Text),
    Root.

%% The recorded HCA, with another driver of its hardware.
with_driver(Config, Driver) ->
    Root = copy(Config, mlx5),
    Link = filename:join(Root, "sys/class/infiniband/mlx5_0/device/driver"),
    ok = file:delete(Link),
    ok = file:make_symlink("../../../../../bus/pci/drivers/" ++ Driver, Link),
    Root.

copy(Config, Machine) ->
    Name = lists:concat([Machine, ".", erlang:unique_integer([positive])]),
    Root = filename:join(?config(priv_dir, Config), Name),
    {0, _} = run("cp", ["-a", filename:join(?config(data_dir, Config), Machine), Root]),
    Root.

findings(#{findings := Findings}) -> Findings.

in_the_way(Report) -> [Finding || #{severity := problem} = Finding <- findings(Report)].

about(What, Findings) -> [Finding || #{about := About} = Finding <- Findings, About =:= What].

port(#{devices := [#{ports := Ports}]}, Number) ->
    [Port] = [Port || #{number := Known} = Port <- Ports, Known =:= Number],
    Port.

counters(#{counters := Counters}) -> [{Name, Value} || #{name := Name, value := Value} <- Counters].

parsed(Report) -> inet_rdma_test_json:decode(inet_rdma_doctor:to_json(Report)).

run(Program, Arguments) ->
    Port = open_port(
        {spawn_executable, os:find_executable(Program)},
        [{args, Arguments}, binary, exit_status, stderr_to_stdout]
    ),
    output(Port, <<>>).
