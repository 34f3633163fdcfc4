// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {ERC2771Forwarder} from "@openzeppelin/contracts/metatx/ERC2771Forwarder.sol";
import {SignatureChecker} from "@openzeppelin/contracts/utils/cryptography/SignatureChecker.sol";
import {Errors} from "@openzeppelin/contracts/utils/Errors.sol";

/// Brings signed requests to pools, so that a wallet without gas can use them through any relayer. Has no owner and
/// holds nothing. Signatures are those of the account's own key or, for a contract wallet, EIP-1271. A request whose call
/// fails is not used up: it can be brought again, so nobody can burn one that is not ripe.
contract Forwarder is ERC2771Forwarder("Selion Forwarder") {
    /// A batch that goes on after a failed call would use that request up.
    error RefundRefused(address receiver);

    /// All or nothing: with a receiver of refunds, OpenZeppelin's batch skips what fails and uses up its nonce.
    function executeBatch(ForwardRequestData[] calldata requests, address payable refundReceiver)
        public
        payable
        override
    {
        if (refundReceiver != address(0)) revert RefundRefused(refundReceiver);
        super.executeBatch(requests, refundReceiver);
    }

    /// OpenZeppelin's batch also goes on after a failed call that carries no value, whoever gets refunds.
    function _execute(ForwardRequestData calldata request, bool requireValidRequest) internal override returns (bool) {
        if (!super._execute(request, requireValidRequest)) revert Errors.FailedCall();
        return true;
    }

    /// The plain signature first: an account of a key that also has code (EIP-7702) need not know EIP-1271.
    function _recoverForwardRequestSigner(ForwardRequestData calldata request)
        internal
        view
        override
        returns (bool valid, address signer)
    {
        (valid, signer) = super._recoverForwardRequestSigner(request);
        if (valid && signer == request.from) return (valid, signer);
        bytes32 digest = _hashTypedDataV4(
            keccak256(
                abi.encode(
                    FORWARD_REQUEST_TYPEHASH,
                    request.from,
                    request.to,
                    request.value,
                    request.gas,
                    nonces(request.from),
                    request.deadline,
                    keccak256(request.data)
                )
            )
        );
        if (SignatureChecker.isValidERC1271SignatureNowCalldata(request.from, digest, request.signature)) {
            return (true, request.from);
        }
    }
}
