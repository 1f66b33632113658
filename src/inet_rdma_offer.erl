%% The offer: bytes that a node with this carrier appends to its name in the handshake.
%%
%% The handshake's two `N` messages (name from the initiator, challenge from the acceptor) end with the sender's name, and
%% OTP ignores what follows it. So a node without this carrier, of any OTP version, sees nothing. The offer goes to
%% every peer that connects, before the cookie is proved: it tells nothing but that this node can settle, and by which
%% version.
%%
%%     <<"inetrdma", Version:16, _:6, StaysOnTcp:1, Required:1, _/binary>>
%%
%% Later versions may use the free bits, and add bytes behind these.
-module(inet_rdma_offer).

-export([offer/2, append/3, parse/2]).
-export_type([offer/0]).

%% none: a peer that runs another carrier, inet_tcp above all.
%% settles: false: it does not settle this time, and the link stays on TCP.
-type offer() :: none | #{version := non_neg_integer(), required := boolean(), settles := boolean()}.

-define(MAGIC, "inetrdma").
%% The version of the settlement. Both sides must have the same one; else the link stays on TCP.
-define(VERSION, 1).

%% Of this node.
-spec offer(inet_rdma_options:config(), Settles :: boolean()) -> offer().
offer(#{required := Required}, Settles) ->
    #{version => ?VERSION, required => Required, settles => Settles}.

%% The message with the offer behind it, if it is an `N` message that ends with the name; else the message.
-spec append(initiator | acceptor, binary(), offer()) -> iodata().
append(Role, Message, #{version := Version, required := Required, settles := Settles}) ->
    case split(Role, Message) of
        {_Name, <<>>} -> [Message, <<?MAGIC, Version:16, 0:6, (flag(not Settles)):1, (flag(Required)):1>>];
        _ -> Message
    end.

%% The sender's name in UTF-8, and its offer, in an `N` message that the node of this role has received.
-spec parse(initiator | acceptor, binary()) -> {Name :: binary(), offer()}.
parse(Role, Message) ->
    case split(other(Role), Message) of
        {Name, <<?MAGIC, Version:16, _:6, Stays:1, Required:1, _/binary>>} ->
            {utf8(Name), #{version => Version, required => Required =:= 1, settles => Stays =:= 0}};
        {Name, _} ->
            {utf8(Name), none};
        error ->
            {<<>>, none}
    end.

%% Names in the handshake are Latin-1.
utf8(Name) -> unicode:characters_to_binary(Name, latin1).

%% "Distribution Handshake" in the ERTS documentation.
split(initiator, <<$N, _Flags:64, _Creation:32, Length:16, Name:Length/binary, Rest/binary>>) -> {Name, Rest};
split(acceptor, <<$N, _Flags:64, _Challenge:32, _Creation:32, Length:16, Name:Length/binary, Rest/binary>>) -> {Name, Rest};
split(_Role, _Message) -> error.

other(initiator) -> acceptor;
other(acceptor) -> initiator.

flag(true) -> 1;
flag(false) -> 0.
