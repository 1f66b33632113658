%% The offer: what a node that runs this carrier says behind its name in the handshake.
%%
%% The handshake's two `N` messages (name from the initiator, challenge from the acceptor) end with the sender's name, and
%% OTP ignores what follows it. So a node without this carrier, of any OTP version, sees nothing. The offer goes to whoever
%% connects, before the cookie is proved: it tells nothing but that this node can settle, and by which version.
%%
%%     <<"inetrdma", Version:16, Required:8, _/binary>>
%%
%% Later versions may add bytes behind these.
-module(inet_rdma_offer).

-export([append/3, parse/2, version/0]).
-export_type([offer/0]).

%% none: a peer that runs another carrier, inet_tcp above all.
-type offer() :: none | #{version := non_neg_integer(), required := boolean()}.

-define(MAGIC, "inetrdma").
%% The version of the settlement. Both sides must have the same one; else the link stays on TCP.
-define(VERSION, 1).

-spec version() -> pos_integer().
version() -> ?VERSION.

%% The message with the offer behind it, if it is an `N` message that ends with the name; else the message.
-spec append(initiator | acceptor, binary(), inet_rdma_options:config()) -> iodata().
append(Role, Message, #{required := Required}) ->
    case split(Role, Message) of
        {_Name, <<>>} -> [Message, <<?MAGIC, ?VERSION:16, (flag(Required))>>];
        _ -> Message
    end.

%% The sender's name, and its offer, in an `N` message that the node of this role has received.
-spec parse(initiator | acceptor, binary()) -> {Name :: binary(), offer()}.
parse(Role, Message) ->
    case split(other(Role), Message) of
        {Name, <<?MAGIC, Version:16, Required, _/binary>>} ->
            {Name, #{version => Version, required => Required =:= 1}};
        {Name, _} ->
            {Name, none};
        error ->
            {<<>>, none}
    end.

%% "Distribution Handshake" in the ERTS documentation.
split(initiator, <<$N, _Flags:64, _Creation:32, Length:16, Name:Length/binary, Rest/binary>>) -> {Name, Rest};
split(acceptor, <<$N, _Flags:64, _Challenge:32, _Creation:32, Length:16, Name:Length/binary, Rest/binary>>) -> {Name, Rest};
split(_Role, _Message) -> error.

other(initiator) -> acceptor;
other(acceptor) -> initiator.

flag(true) -> 1;
flag(false) -> 0.
