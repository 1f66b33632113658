%% Values of each option: some that work, the smallest, and some that must be refused. They follow
%% from the option's type in inet_rdma_options:list/0; docs/OPTIONS.md, which ExUnit compares with
%% that list, has the bounds once more.
-module(inet_rdma_test_options).

-export([keys/0, smallest/1, good/1, bad/1]).

-spec keys() -> [atom()].
keys() -> [Key || {Key, _, _, _} <- inet_rdma_options:list()].

%% The smallest value that is accepted.
-spec smallest(atom()) -> integer().
smallest(Key) ->
    case type(Key) of
        {integer, Min, _Max, _Unit} -> Min;
        {zero_or, _Min, _Max, _Unit} -> 0
    end.

type(Key) ->
    {Key, _, Type, _} = lists:keyfind(Key, 1, inet_rdma_options:list()),
    Type.

%% Values that a pair of nodes works with: one node has the first, the other the last.
-spec good(atom()) -> [term(), ...].
%% verbs: only on a machine with a device, see options_SUITE.
good(fabric) -> [auto, shm, tcp];
%% tls needs certificates, which tls_SUITE has.
good(security) -> [none];
%% direct_only works with a peer of the same mode only, which transfer_SUITE tries.
good(mode) -> [dynamic, indirect_only];
%% Nodes here have less memory, and send more than the smallest packet.
good(ring_bytes) -> [4096, 10000, 1 bsl 24];
good(landing_buffers) -> [0, 1, 256];
good(packet_max_bytes) -> [1 bsl 20, 2147483647];
good(polling_threads) -> [1, 4];
good(flight_bytes) -> [65536, 1 bsl 22];
good(pinned_max_bytes) -> [0, 1 bsl 23, 1 bsl 60];
%% 1 ms is too short for a link.
good(connect_timeout_ms) -> [1000, 60000];
%% A second or a tenth: what the option bounds happens during the test.
good(rekey_seconds) -> [0, 1, 31536000];
good(move_back_ms) -> [0, 100, 86400000];
%% neighbours_SUITE has pairs that need it.
good(shm_directory) -> [none, <<"/tmp">>];
good(flight_directory) -> [default];
good(Key) -> values(type(Key)).

values({one_of, Values}) -> Values;
values({integer, Min, Max, _Unit}) -> [Min, Max];
values({zero_or, Min, Max, _Unit}) -> [0, Min, Max];
values({users, _Max}) -> [[], [0], [1, 1000]];
%% Each kernel has reno, and gives it to each process.
values(congestion) -> [default, <<"reno">>].

%% Values that are refused, as text of the command line.
-spec bad(atom()) -> [string(), ...].
bad(Key) -> refused(type(Key)).

refused({one_of, _Values}) ->
    ["sometimes", "7"];
%% erl would take a negative number for a flag of its own.
refused({integer, 0, Max, _Unit}) ->
    [integer_to_list(Max + 1), "many"];
refused({integer, Min, Max, Unit}) ->
    [integer_to_list(Min - 1) | refused({integer, 0, Max, Unit})];
refused({zero_or, Min, Max, _Unit}) ->
    ["1", integer_to_list(Min - 1), integer_to_list(Max + 1), "many"];
refused(directory) ->
    ["relative/path", "7"];
refused(shared_directory) ->
    ["relative", "/a/../b", "/a/."];
refused({users, _Max}) ->
    ["root", "4294967295", "1,x"];
refused(congestion) ->
    ["none_such", "7", "more_than_15_bytes"].
