// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";

// Defects of others' contracts, condensed by us from their description. Never deployed; they show the harm in Peers.t.sol.

/// Reads a record after it deleted it: the event says 0.
contract ReadsAfterDelete {
    event BondRemoved(address owner, uint256 amount);

    mapping(address => uint256) public bonds;

    function bond(uint256 amount) external {
        bonds[msg.sender] = amount;
    }

    function remove() external returns (uint256 paid) {
        paid = bonds[msg.sender];
        delete bonds[msg.sender];
        emit BondRemoved(msg.sender, bonds[msg.sender]);
    }
}

/// Hands a role over by taking it from the caller instead of its holder.
contract RevokesTheCaller {
    address private immutable ADMIN = msg.sender;
    mapping(address => bool) public validator;

    function setValidator(address next) external {
        require(msg.sender == ADMIN);
        validator[msg.sender] = false;
        validator[next] = true;
    }
}

/// Its event leaves out what it stores.
contract OmitsAField {
    event NodeAdded(address indexed node);

    mapping(address => uint256) public units;

    function add(address node, uint256 units_) external {
        units[node] = units_;
        emit NodeAdded(node);
    }
}

/// Believes that a transfer happened because the call came back.
contract IgnoresTheAnswer {
    IERC20 private immutable TOKEN;
    mapping(address => uint256) public balance;

    constructor(IERC20 token) {
        TOKEN = token;
    }

    function deposit(uint256 amount) external {
        TOKEN.transferFrom(msg.sender, address(this), amount);
        balance[msg.sender] += amount;
    }

    function withdraw() external {
        uint256 amount = balance[msg.sender];
        balance[msg.sender] = 0;
        TOKEN.transfer(msg.sender, amount);
    }
}

/// Knows people by the origin of the transaction.
contract TrustsTheOrigin {
    IERC20 private immutable TOKEN;
    mapping(address => uint256) public balance;

    constructor(IERC20 token) {
        TOKEN = token;
    }

    function deposit(uint256 amount) external {
        balance[tx.origin] += amount;
        TOKEN.transferFrom(msg.sender, address(this), amount);
    }

    function withdraw(address to) external {
        uint256 amount = balance[tx.origin];
        balance[tx.origin] = 0;
        TOKEN.transfer(to, amount);
    }
}

/// Something that a renter is made to call: it turns to the escrow in his transaction.
contract Phisher {
    function free(address escrow, bytes calldata call_) external returns (bool done) {
        (done,) = escrow.call(call_);
    }
}

/// An indexed text leaves only its hash in the log.
contract IndexesAText {
    event Registered(address indexed owner, string indexed endpoint);

    function register(string calldata endpoint) external {
        emit Registered(msg.sender, endpoint);
    }
}

/// Two stages, one deadline looked up for both.
contract LooksUpTheWrongDelay {
    uint256 public constant JUDGING_S = 1 hours;
    uint256 public constant MEDIATION_S = 3 days;
    uint256 public mediationSince;

    function mediate() external {
        mediationSince = block.timestamp;
    }

    function timedOut() external view returns (bool) {
        return block.timestamp >= mediationSince + JUDGING_S;
    }
}

/// Lets a renter leave at once, with vouchers outstanding.
contract LeavesAtOnce {
    mapping(address => uint256) public balance;

    function deposit(uint256 amount) external {
        balance[msg.sender] += amount;
    }

    function withdraw() external returns (uint256 amount) {
        amount = balance[msg.sender];
        balance[msg.sender] = 0;
    }

    function claim(address renter, uint256 owed) external returns (uint256 paid) {
        paid = owed < balance[renter] ? owed : balance[renter];
        balance[renter] -= paid;
    }
}

/// Pays a provider only for what the renter accepted.
contract WaitsForTheRenter {
    mapping(address => uint256) public accepted;

    function accept(address provider, uint256 amount) external {
        accepted[provider] += amount;
    }

    function claim() external returns (uint256 paid) {
        paid = accepted[msg.sender];
        accepted[msg.sender] = 0;
    }
}
