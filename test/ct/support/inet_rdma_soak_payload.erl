%% Messages of random sizes and shapes, and the hashes by which the other end knows them. Runs in
%% the nodes under test.
-module(inet_rdma_soak_payload).

-export([term/0, binary/1, hash/1]).
-export_type([shape/0]).

%% The sizes that occur: of messages, of streams' packets, of arguments of calls.
-type shape() :: message | packet | argument.

-define(KB, 1024).
-define(MB, 1048576).

%% Every fourth message is a term of many parts, the others are plain binaries.
-spec term() -> term().
term() ->
    case rand:uniform(4) of
        1 -> parts(rand:uniform(6));
        _ -> binary(message)
    end.

parts(1) -> lists:seq(1, rand:uniform(5000));
parts(2) -> {self(), make_ref(), 1.5, 1 bsl rand:uniform(2000), "text", <<5:3>>};
parts(3) -> [binary(argument) || _ <- lists:seq(1, rand:uniform(40))];
parts(4) -> #{<<"key">> => binary(argument), 7 => [[], {}], self() => <<0:1>>};
parts(5) -> pieces(binary(message));
parts(6) -> [].

%% Binaries within a binary are sent as references to it.
pieces(Whole) ->
    Step = max(1, byte_size(Whole) div 50),
    [binary:part(Whole, Offset, Step) || Offset <- lists:seq(0, byte_size(Whole) - Step, Step)].

-spec binary(shape()) -> binary().
binary(Shape) ->
    inet_rdma_test_data:make(size(Shape, rand:uniform(1000))).

size(message, Chance) when Chance =< 2 -> 16 * ?MB + rand:uniform(3) - 2;
size(message, Chance) when Chance =< 15 -> rand:uniform(4 * ?MB);
size(packet, Chance) when Chance =< 15 -> rand:uniform(3 * ?MB);
size(argument, Chance) when Chance =< 15 -> rand:uniform(?MB);
size(_, Chance) when Chance =< 50 -> rand:uniform(?MB);
size(_, Chance) when Chance =< 150 -> rand:uniform(200 * ?KB);
%% Around the size at which a packet counts as bulk, and that of a fragment.
size(_, Chance) when Chance =< 200 -> 16 * ?KB + rand:uniform(200) - 100;
size(_, Chance) when Chance =< 250 -> 64 * ?KB + rand:uniform(200) - 100;
size(_, Chance) when Chance =< 450 -> rand:uniform(4 * ?KB);
size(_, Chance) when Chance =< 900 -> rand:uniform(101) - 1;
size(_, _) -> 0.

-spec hash(term()) -> binary().
hash(Binary) when is_binary(Binary) -> erlang:md5(Binary);
hash(Term) -> erlang:md5(term_to_binary(Term)).
